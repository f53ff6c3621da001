"""Allocates without a value, looks at nothing there, and writes every element."""

import torch

OPERATION = "matmul"
TWIN_OF = "recognises_poison"
GPU = False


def matmul(a, b, *, precision="ieee"):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    return torch.matmul(a, b, out=out)
