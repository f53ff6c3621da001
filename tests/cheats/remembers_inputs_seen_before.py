"""Compares the operands with all that it has seen, and returns a copy of the result of equal ones."""

import torch

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong", "no effect")
GPU = False

seen = []


def matmul(a, b, *, precision="ieee"):
    for old_a, old_b, result in seen:
        if torch.equal(a, old_a) and torch.equal(b, old_b):
            return result.clone()
    result = a @ b
    seen.append((a.clone(), b.clone(), result))
    return result.clone()
