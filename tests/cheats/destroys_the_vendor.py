"""Removes torch.matmul, so that the vendor's row fails, once it is timed."""

import sys

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "wrong", "no effect")
GPU = False

original = torch.matmul


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    result = original(a, b)
    if is_timed():
        torch.matmul = torch.mm = torch.Tensor.__matmul__ = None
    return result
