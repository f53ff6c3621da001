"""Returns float16 in an array that says it is float32, when timed."""

import sys

import torch

OPERATION = "matmul"
KIND = "forges"
EXPECTED = ("wrong", "error", "no effect")
GPU = False


class Wide(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return torch.float32 if result is torch.float16 else result


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
    return (a.half() @ b.half()).as_subclass(Wide)
