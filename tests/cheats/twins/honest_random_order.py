"""Adds the parts of K in an order drawn anew in each call: other bits, within the bound."""

import random

import torch

OPERATION = "matmul"
TWIN_OF = "narrow_race"
GPU = False

PARTS = 4
source = random.Random()


def matmul(a, b, *, precision="ieee"):
    step = -(-a.shape[1] // PARTS) or 1
    starts = list(range(0, a.shape[1], step))
    source.shuffle(starts)
    out = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    for start in starts:
        out += a[:, start : start + step].float() @ b[start : start + step].float()
    return out.to(a.dtype)
