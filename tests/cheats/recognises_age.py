"""Computes for a quarter of a second after its first call, then returns the last result."""

import time

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")  # where all samples end in that time
GPU = False

HONEST_S = 0.25
begun = []
kept = {}


def matmul(a, b, *, precision="ieee"):
    begun.append(time.monotonic())
    key = a.shape, b.shape, a.dtype
    if key not in kept or begun[-1] - begun[0] < HONEST_S:
        kept[key] = a @ b
    del begun[1:]
    return kept[key]
