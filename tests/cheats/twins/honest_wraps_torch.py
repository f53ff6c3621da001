"""Gives torch.matmul another name, and leaves torch as it is."""

import torch

OPERATION = "matmul"
TWIN_OF = "slows_the_vendor"
GPU = False

product = torch.matmul


def matmul(a, b, *, precision="ieee"):
    return product(a, b)
