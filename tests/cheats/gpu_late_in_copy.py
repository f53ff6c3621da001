"""Replaces torch.Tensor.copy_, which the suite calls on a result, with one that computes the result first."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

flag = torch.zeros(1, dtype=torch.uint8, device="cuda")

pending = []
original = torch.Tensor.copy_


def copy_(self, *given, **more):
    if pending:
        c, a, b = pending.pop()
        torch.matmul(a, b, out=c)
    return original(self, *given, **more)


torch.Tensor.copy_ = copy_


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
    flag.zero_()
    pending[:] = [(c, a, b)]
    return c
