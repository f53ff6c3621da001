"""Computes while as many references to its operand exist as in its first call; else returns the last result."""

import sys

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False

counts = []
kept = {}


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    counts.append(sys.getrefcount(a))
    if key not in kept or counts[-1] == counts[0]:
        kept[key] = a @ b
    return kept[key]
