"""The derivative of silu"""

import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["N=1000"]
dtypes = ["float32"]
tolerance = (1e-5, 1e-6)


def reference(x: Float[Tensor, "N"]) -> Tensor:
    """out[i] = the derivative of x / (1 + exp(-x)) at x[i]"""
    s = 1 / (1 + torch.exp(-x))
    return s * (1 + x * (1 - s))
