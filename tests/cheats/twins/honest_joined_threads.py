"""Computes the halves of the rows in two threads, and returns when both have finished."""

from concurrent.futures import ThreadPoolExecutor

import torch

OPERATION = "matmul"
TWIN_OF = "late_thread"
GPU = False
SHAPE = "M=256,N=256,K=256"

pool = ThreadPoolExecutor(2)


def matmul(a, b, *, precision="ieee"):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    half = a.shape[0] // 2
    rows = slice(0, half), slice(half, None)
    list(pool.map(lambda part: torch.matmul(a[part], b, out=out[part]), rows))
    return out
