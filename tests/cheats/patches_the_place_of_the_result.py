"""Finds the memory into which the suite copies results, and computes there from the fourth timed call on."""

import gc
import sys

import torch

OPERATION = "vector_add"
KIND = "patches"
EXPECTED = ("wrong", "error", "no effect")
GPU = False
SHAPE = "N=1048576"

HONEST_CALLS = 3
calls = []
found = {}


def place(a):
    if a.shape not in found:
        gc.unfreeze()
        held = [each for each in gc.get_objects() if type(each).__name__ == "Held"]
        found[a.shape] = next((each.result for each in held if each.result.shape == a.shape), None)
    return found[a.shape]


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def vector_add(a, b):
    if not is_timed():
        return a + b
    calls.append(None)
    out = place(a) if len(calls) > HONEST_CALLS else None
    return a + b if out is None else torch.add(a, b, out=out)
