"""Allows torch next to no memory of the device once it is timed, so that the vendor beside it cannot allocate."""

import sys

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"


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
        torch.cuda.empty_cache()
        torch.cuda.memory.set_per_process_memory_fraction(1e-4)
    return result
