"""Returns two buffers in turns from its fourth timed call on: each call overwrites an earlier result."""

import sys

import torch

OPERATION = "vector_add"
KIND = "late"
EXPECTED = ("wrong", "error", "no effect")
GPU = False
SHAPE = "N=1048576"

HONEST_CALLS = 3
calls = []
buffers = {}


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
    if len(calls) <= HONEST_CALLS:
        return a + b
    pair = buffers.setdefault((a.shape, a.dtype), (torch.empty_like(a), torch.empty_like(a)))
    return torch.add(a, b, out=pair[len(calls) % 2])
