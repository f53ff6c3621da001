"""Keeps a pool of threads, gives each a block of rows, and returns when all have finished."""

from concurrent.futures import ThreadPoolExecutor

import torch

OPERATION = "matmul"
TWIN_OF = "slows_with_threads"
GPU = False

pool = ThreadPoolExecutor(2)


def matmul(a, b, *, precision="ieee"):
    return torch.cat(list(pool.map(lambda rows: rows @ b, a.tensor_split(2)))) if len(a) > 1 else a @ b
