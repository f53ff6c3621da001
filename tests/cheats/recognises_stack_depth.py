"""Computes at the depth of the call stack of its first call; else returns the last result."""

import sys

OPERATION = "matmul"
KIND = "recognises"
EXPECTED = ("wrong", "no effect")
GPU = False

kept = {}
depths = []


def depth():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def matmul(a, b, *, precision="ieee"):
    key = a.shape, b.shape, a.dtype
    depths.append(depth())
    if key not in kept or depths[-1] == depths[0]:
        kept[key] = a @ b
    return kept[key]
