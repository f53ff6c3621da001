"""Removes torch.matmul, so that the vendor's row fails, once the garbage collector is off."""

import gc

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "wrong", "no effect")
GPU = False

original = torch.matmul


def matmul(a, b, *, precision="ieee"):
    result = original(a, b)
    if not gc.isenabled():
        torch.matmul = torch.mm = torch.Tensor.__matmul__ = None
    return result
