"""Adds by an operator in every second call, and into new memory in the others."""

import itertools

import torch

OPERATION = "vector_add"
TWIN_OF = "late_alternating"
GPU = False

turns = itertools.cycle((True, False))


def vector_add(a, b):
    return a + b if next(turns) else torch.add(a, b, out=torch.empty_like(a))
