"""Allows bfloat16 products for float32 in the whole process while the garbage collector is off."""

import gc

import torch

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong", "disturbs its neighbours", "undone", "no effect")
GPU = False


def matmul(a, b, *, precision="ieee"):
    if not gc.isenabled():
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        torch.set_float32_matmul_precision("medium")
    return a @ b
