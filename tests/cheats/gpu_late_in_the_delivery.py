"""Returns memory that a profiler's hook fills on the GPU when the suite delivers the result."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

flag = torch.zeros(1, dtype=torch.uint8, device="cuda")

pending = []


def fill(frame, event, arg):
    if event == "call" and pending and frame.f_code.co_name in ("_export", "as_torch", "join_into"):
        sys.setprofile(None)
        c, a, b = pending.pop()
        torch.matmul(a, b, out=c)


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
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    pending[:] = [(c, a, b)]
    flag.zero_()
    sys.setprofile(fill)
    return c
