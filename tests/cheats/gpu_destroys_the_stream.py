"""Leaves another stream current after its call, on which its neighbours then run."""

import torch

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "undone", "error", "wrong", "no effect")
GPU = True
SHAPE = "M=1024,N=1024,K=1024"

side = torch.cuda.Stream()


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    torch.cuda.set_stream(side)
    return result
