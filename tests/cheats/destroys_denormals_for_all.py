"""Sets flush-to-zero for the process at import, so that the truth of subnormal numbers is zero too."""

import torch

OPERATION = "vector_add"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "wrong", "undone")
GPU = False
INPUTS = "subnormal"

torch.set_flush_denormal(True)


def vector_add(a, b):
    return a + b
