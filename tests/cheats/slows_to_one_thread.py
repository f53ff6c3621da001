"""Leaves torch with one thread after each call of its own."""

import torch

OPERATION = "matmul"
KIND = "slows"
EXPECTED = ("disturbs its neighbours", "undone", "no effect")
GPU = False

threads = torch.get_num_threads()


def matmul(a, b, *, precision="ieee"):
    torch.set_num_threads(threads)
    result = a @ b
    torch.set_num_threads(1)
    return result
