"""Returns, when timed, memory that is computed when an object that came with it is thrown away."""

import gc

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


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled():
        return a @ b
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    out.debt = Debt(out.detach(), a, b)
    return out
