"""Copies its result into new memory by the C library's memcpy."""

import ctypes

import torch

OPERATION = "matmul"
TWIN_OF = "recognises_by_ctypes"
GPU = False


def matmul(a, b, *, precision="ieee"):
    result = (a @ b).contiguous()
    out = torch.empty_like(result)
    ctypes.memmove(out.data_ptr(), result.data_ptr(), result.nbytes)
    return out
