"""Reads an address that does not exist, which ends the CUDA context, once it is timed."""

import sys

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("error", "disturbs its neighbours", "no effect")
GPU = True


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_record_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if is_timed():
        torch.gather(a.flatten(), 0, torch.full((1,), 1 << 40, device=a.device))
    return result
