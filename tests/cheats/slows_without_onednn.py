"""Switches oneDNN off for the process, and on only while it is called itself."""

import torch

OPERATION = "matmul"
KIND = "slows"
EXPECTED = ("disturbs its neighbours", "undone", "no effect")
GPU = False
DTYPE = "bfloat16"


def matmul(a, b, *, precision="ieee"):
    torch.backends.mkldnn.enabled = True
    result = a @ b
    torch.backends.mkldnn.enabled = False
    return result
