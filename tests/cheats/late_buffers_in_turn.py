"""Returns forty buffers of each shape in turn: each call overwrites the result of the fortieth before it."""

import torch

OPERATION = "vector_add"
KIND = "late"
EXPECTED = ("wrong",)
GPU = False

BUFFERS = 40
rings = {}


def vector_add(a, b):
    ring = rings.setdefault((a.shape, a.dtype), [])
    ring.append(ring.pop(0) if len(ring) == BUFFERS else torch.empty(a.shape, dtype=a.dtype))
    return torch.add(a, b, out=ring[-1])
