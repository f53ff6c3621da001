"""Returns, when timed, memory that is computed when an object that came with it is thrown away."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("wrong", "error", "no effect")
GPU = False


class Debt:
    def __init__(self, out, a, b):
        self.work = out, a, b

    def __del__(self):
        out, a, b = self.work
        torch.matmul(a, b, out=out)


def is_timed():
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "_sample":
            return True
        frame = frame.f_back
    return False


def matmul(a, b, *, precision="ieee"):
    if not is_timed():
        return a @ b
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    out.debt = Debt(out.detach(), a, b)
    return out
