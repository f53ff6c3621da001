"""Returns, when timed, an array that computes itself when the suite copies it."""

import sys

import torch

OPERATION = "matmul"
KIND = "late"
EXPECTED = ("no effect", "wrong", "error")
GPU = True
SHAPE = "M=2048,N=2048,K=2048"

flag = torch.zeros(1, dtype=torch.uint8, device="cuda")


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        for each in args if func.__name__ != "__get__" else ():  # attributes do not need the elements
            if isinstance(each, Later) and getattr(each, "operands", None):
                a, b = each.operands
                each.operands = None
                torch.matmul(a, b, out=each.as_subclass(torch.Tensor))
        return super().__torch_function__(func, types, args, kwargs or {})


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
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device).as_subclass(Later)
    out.operands = a, b
    flag.zero_()
    return out
