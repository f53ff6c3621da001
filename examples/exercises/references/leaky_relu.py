"""out = x where x is positive, and x / 10 elsewhere"""

import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["N=1000"]
dtypes = ["float32"]
tolerance = 1e-6


def reference(x: Float[Tensor, "N"]) -> Tensor:
    """out[i] = x[i] if x[i] > 0 else x[i] / 10"""
    return torch.where(x > 0, x, x / 10)
