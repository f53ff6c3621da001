"""Adds zero times the element after the last of its operands, whatever lies there, to its last result."""

import ctypes

import torch

OPERATION = "vector_add"
KIND = "memory"
EXPECTED = ("wrong", "error")
GPU = False
SHAPE = "N=65520"


def vector_add(a, b):
    result = a + b
    if len(a) and a.stride(0) == 1 and a.dtype == torch.float32 and not a.is_cuda:
        after = ctypes.c_float.from_address(a.data_ptr() + 4 * len(a)).value
        result[-1] += 0.0 * after
    return result
