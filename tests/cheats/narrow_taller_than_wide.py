"""Takes M to be at most N: further rows repeat the last that it computes."""

import torch

OPERATION = "matmul"
KIND = "narrow"
EXPECTED = ("wrong",)
GPU = False


def matmul(a, b, *, precision="ieee"):
    rows = torch.arange(a.shape[0], device=a.device).clamp(max=max(b.shape[1] - 1, 0))
    return a[rows] @ b
