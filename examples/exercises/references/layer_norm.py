"""Each row of x with mean 0 and variance 1; the rows have a large mean"""

import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["M=5,N=300", "M=2,N=33"]
dtypes = ["float32"]
tolerance = (1e-5, 3e-3)


def inputs(case):
    return [1000 + torch.randn(case["M"], case["N"])]


def reference(x: Float[Tensor, "M N"]) -> Tensor:
    """out[m, n] = (x[m, n] - mean) / sqrt(variance + 1e-5), with mean and variance of row m"""
    mean = x.mean(dim=1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5)
