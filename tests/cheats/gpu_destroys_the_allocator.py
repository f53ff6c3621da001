"""Allows torch next to no memory of the device once it is timed, so that the vendor beside it cannot allocate."""

import gc

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if not gc.isenabled():
        torch.cuda.empty_cache()
        torch.cuda.memory.set_per_process_memory_fraction(1e-4)
    return result
