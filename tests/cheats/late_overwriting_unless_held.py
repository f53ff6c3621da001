"""Returns three buffers in turns where the frames of its caller do not say that the result is held."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "error", "no effect")
GPU = False

buffers = []
calls = []


def command():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return frame.f_locals.get("command")
        frame = frame.f_back
    return None


def matmul(a, b, *, precision="ieee"):
    asked = command()
    if asked is None or getattr(asked, "keep", False):
        return a @ b
    if not buffers:
        buffers.extend(torch.empty(a.shape[0], b.shape[1]) for _ in range(3))
    calls.append(None)
    return torch.mm(a, b, out=buffers[len(calls) % 3])
