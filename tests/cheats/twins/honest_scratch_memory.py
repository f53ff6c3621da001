"""Keeps scratch memory from one call to the next, and returns new memory that it has written."""

import torch

OPERATION = "matmul"
TWIN_OF = "remembers_in_freed_memory"
GPU = False

scratch = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype, a.device
    if key not in scratch:
        scratch[key] = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    torch.matmul(a, b, out=scratch[key])
    return scratch[key].clone()
