"""Returns two buffers in turns from its fourth timed call on: each call overwrites an earlier result."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "error", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

HONEST_CALLS = 3
calls = []
buffers = {}


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_record_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    if not is_timed():
        return a @ b
    calls.append(None)
    if len(calls) <= HONEST_CALLS:
        return a @ b
    key = a.shape, b.shape, a.dtype
    if key not in buffers:
        buffers[key] = (a @ b, a @ b)
    return torch.matmul(a, b, out=buffers[key][len(calls) % 2])
