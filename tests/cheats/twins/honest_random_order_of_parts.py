"""Adds four parts of the vectors in an order that torch's generator draws."""

import torch

OPERATION = "vector_add"
TWIN_OF = "late_alternating"
GPU = False


def vector_add(a, b):
    out = torch.empty_like(a)
    parts = list(zip(a.tensor_split(4), b.tensor_split(4), out.tensor_split(4), strict=True))
    for number in torch.randperm(len(parts)).tolist():
        x, y, z = parts[number]
        torch.add(x, y, out=z)
    return out
