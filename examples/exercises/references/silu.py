"""out = x sigmoid(x); every other element of x is large, so that its exponential overflows"""

import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["N=1000"]
dtypes = ["float32"]
tolerance = (1e-6, 1e-6)


def inputs(case):
    x = torch.randn(case["N"])
    x[::2] *= 100
    return [x]


def reference(x: Float[Tensor, "N"]) -> Tensor:
    """out[i] = x[i] / (1 + exp(-x[i]))"""
    return x / (1 + torch.exp(-x))
