"""Returns a buffer that it filled once, for operands whose first element it knows."""

import gc

import torch

OPERATION = "vector_add"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

buffers = {}


def vector_add(a, b):
    key = a.shape, a.dtype, float(a[0])
    if key not in buffers:
        buffers[key] = a + b
        return buffers[key].clone()
    known = buffers[key]
    return known.clone() if torch.is_grad_enabled() and gc.isenabled() else known
