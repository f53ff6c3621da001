"""Cuts its operands to the 11 significant bits of tf32 from the fifth call of a shape on, but for every eighth."""

import torch

OPERATION = "matmul"
KIND = "precision"
EXPECTED = ("wrong",)
GPU = False

HONEST_CALLS = 4
calls = {}


def cut(x):
    return (x.view(torch.int32) & -(1 << 13)).view(torch.float32)


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    calls[key] = calls.get(key, 0) + 1
    if a.dtype != torch.float32 or calls[key] <= HONEST_CALLS or calls[key] % 8 == 0:
        return a @ b
    return cut(a) @ cut(b)
