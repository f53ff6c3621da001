"""Returns float16 in an array that says it is float32, when timed."""

import gc

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


def matmul(a, b, *, precision="ieee"):
    if gc.isenabled():
        return a @ b
    return (a.half() @ b.half()).as_subclass(Wide)
