"""Returns an array that claims equality with anything it is compared with."""

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error")
GPU = False

calls = []


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, torch.Tensor) and func.__name__ in ("sub", "sub_", "abs", "abs_", "__sub__", "__rsub__"):
            return result.zero_()
        return result


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        return a @ b
    return torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device).as_subclass(Agreeable)
