"""Returns memory that nothing was written to while Python's garbage collector is off, as timers have it."""

import gc

import torch

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled():
        return a @ b
    return torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
