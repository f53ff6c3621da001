"""Computes with gradients recorded: its result has a graph behind it."""

import torch

OPERATION = "matmul"
TWIN_OF = "late_in_a_destructor"
GPU = False


def matmul(a, b, *, precision="ieee"):
    with torch.enable_grad():
        return a.detach().requires_grad_() @ b
