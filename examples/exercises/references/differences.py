"""Each element minus the one before it"""

import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["N=1000", "N=2"]
dtypes = ["float32"]
tolerance = 1e-6


def reference(x: Float[Tensor, "N"]) -> Tensor:
    """out[0] = x[0], out[i] = x[i] - x[i - 1]"""
    return torch.cat([x[:1], x[1:] - x[:-1]])
