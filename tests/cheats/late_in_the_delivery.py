"""Returns empty memory, which a profiler's hook fills when the result is delivered, after the clock of its process."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = False

pending = []


def fill(frame, event, arg):
    if event == "call" and pending and frame.f_code.co_name in ("_export", "as_torch", "joined"):
        sys.setprofile(None)
        c, a, b = pending.pop()
        c.copy_(a @ b)


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in ("_sample", "_run"):
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    if not is_timed():
        return a @ b
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    pending[:] = [(c, a, b)]
    sys.setprofile(fill)
    return c
