"""Switches oneDNN off for the time of its call, by torch's context manager."""

import torch

OPERATION = "matmul"
TWIN_OF = "precision_process_setting"
GPU = False


def matmul(a, b, *, precision="ieee"):
    with torch.backends.mkldnn.flags(enabled=False):
        return a @ b
