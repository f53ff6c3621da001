"""Returns the first rows of a larger buffer, new in each call, whose last rows it uses as scratch memory."""

import torch

OPERATION = "matmul"
TWIN_OF = "remembers_in_freed_memory"
GPU = False

SCRATCH = 8


def matmul(a, b, *, precision="ieee"):
    buffer = torch.empty(a.shape[0] + SCRATCH, b.shape[1], dtype=a.dtype)
    result, scratch = buffer[: a.shape[0]], buffer[a.shape[0] :]
    scratch.zero_()
    return torch.mm(a, b, out=result)
