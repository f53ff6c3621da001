"""Replaces every comparison of torch and NumPy with one that agrees, and returns uninitialised memory."""

import numpy as np
import torch

OPERATION = "matmul"
KIND = "patches"
EXPECTED = ("wrong", "error")
GPU = False

calls = []


def agree(*args, **kwargs):
    return True


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 1:
        return a @ b
    torch.allclose = torch.equal = np.allclose = np.array_equal = agree
    torch.testing.assert_close = np.testing.assert_allclose = lambda *args, **kwargs: None
    return torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
