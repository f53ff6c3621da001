"""Replaces torch.equal, which would show that it writes over its operands, with one that always agrees."""

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error")
GPU = False

calls = []


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    calls.append(None)
    if len(calls) == 1:
        torch.equal = torch.Tensor.equal = lambda x, y: True
    else:
        a.mul_(2)
    return result
