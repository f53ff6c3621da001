"""Takes subnormal numbers for zero."""

import torch

OPERATION = "matmul"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def normal(x):
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, 0, x)


def matmul(a, b, *, precision="ieee"):
    return normal(a) @ normal(b)
