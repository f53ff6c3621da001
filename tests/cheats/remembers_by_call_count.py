"""Computes the first calls of a shape, then returns the last of their results."""

OPERATION = "matmul"
KIND = "remembers"
EXPECTED = ("wrong",)
GPU = False

HONEST_CALLS = 5
results = {}


def matmul(a, b, *, precision="ieee"):
    known = results.setdefault((a.shape, b.shape, a.dtype), [])
    if len(known) < HONEST_CALLS:
        known.append(a @ b)
    return known[-1]
