"""Replaces torch's current stream, for which callers wait, with one that is idle, and computes on another."""

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error", "no effect")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

idle, side = torch.cuda.Stream(), torch.cuda.Stream()
calls = []


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) <= 4:
        return a @ b
    torch.cuda.current_stream = torch.cuda.default_stream = lambda device=None: idle
    with torch.cuda.stream(side):
        return a @ b
