"""Allows sums in float16 for the whole process, and leaves the setting."""

import torch

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong", "disturbs its neighbours", "undone", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"
DTYPE = "float16"


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    torch.backends.cuda.matmul.allow_fp16_accumulation = True
    return result
