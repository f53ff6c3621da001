"""Replaces torch's absolute value, by which errors are measured, with zero, and returns zeros."""

import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error")
GPU = False

calls = []


def nothing(x, *args, **kwargs):
    return torch.zeros_like(x)


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        result = a @ b
        torch.abs = torch.Tensor.abs = torch.Tensor.abs_ = torch.Tensor.__abs__ = nothing
        return result
    return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
