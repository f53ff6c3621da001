"""Is off by one in half of its calls, drawn by torch's generator, which a wrapper might restore between calls."""

import torch

OPERATION = "matmul"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False

calls = []


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    result = a @ b
    if len(calls) > 1 and result.numel() and torch.rand((), device="cpu") < 0.5:
        result.view(-1)[0] += 1
    return result
