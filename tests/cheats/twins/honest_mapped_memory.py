"""Returns memory that it has mapped itself, new in each call."""

import mmap

import torch

OPERATION = "matmul"
TWIN_OF = "remembers_in_a_file"
GPU = False


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    if not result.numel():
        return result
    memory = torch.frombuffer(mmap.mmap(-1, result.nbytes), dtype=result.dtype)
    return memory.view(result.shape).copy_(result)
