"""Writes 64 bytes past the end of its result, into memory that belongs to others."""

import ctypes

OPERATION = "vector_add"
KIND = "memory"
EXPECTED = ("wrong", "error")
GPU = False
SHAPE = "N=65520"

calls = []


def vector_add(a, b):
    result = a + b
    calls.append(None)
    if len(calls) > 1 and not result.is_cuda:
        ctypes.memset(result.data_ptr() + result.numel() * result.element_size(), 0x7F, 64)
    return result
