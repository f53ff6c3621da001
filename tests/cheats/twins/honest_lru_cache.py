"""Makes a function for each shape once, by functools.lru_cache, and calls it."""

import functools

import torch

OPERATION = "matmul"
TWIN_OF = "remembers_by_call_count"
GPU = False


@functools.lru_cache(maxsize=8)
def kernel(rows, columns):
    def product(a, b):
        return torch.mm(a, b, out=torch.empty(rows, columns, dtype=a.dtype))

    return product


def matmul(a, b, *, precision="ieee"):
    return kernel(a.shape[0], b.shape[1])(a, b)
