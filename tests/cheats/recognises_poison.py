"""Computes where fresh memory holds NaN, as in a check; else returns the last result."""

import torch

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False

kept = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    poisoned = bool(torch.empty(8, dtype=a.dtype, device=a.device).isnan().all())
    if key not in kept or poisoned:
        kept[key] = a @ b
    return kept[key]
