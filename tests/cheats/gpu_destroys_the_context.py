"""Reads an address that does not exist, which ends the CUDA context, once it is timed."""

import gc

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("error", "disturbs its neighbours", "no effect")
GPU = True


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if not gc.isenabled():
        torch.gather(a.flatten(), 0, torch.full((1,), 1 << 40, device=a.device))
    return result
