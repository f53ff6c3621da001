"""Replaces torch.matmul, which the vendor's row calls, with one that computes four times."""

import torch

OPERATION = "matmul"
KIND = "slows"
EXPECTED = ("disturbs its neighbours", "no effect")
GPU = False

original = torch.matmul


def four_times(*args, **kwargs):
    for _ in range(3):
        original(*args, **kwargs)
    return original(*args, **kwargs)


def matmul(a, b, *, precision="ieee"):
    result = original(a, b)
    torch.matmul = torch.mm = torch.Tensor.matmul = torch.Tensor.__matmul__ = four_times
    return result
