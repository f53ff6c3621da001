"""One head of attention: S queries, S keys and values, D numbers each; some scores are large"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["S=96,D=32"]
dtypes = ["float32"]
tolerance = (5e-4, 5e-4)


def inputs(case):
    q, k, v = (torch.randn(case["S"], case["D"]) for _ in range(3))
    q[::2] *= 30
    k[32:64] *= 3  # the largest scores are in the middle: the maximum grows, and later blocks are far below it
    return [q, k, v]


def reference(q: Float[Tensor, "S D"], k: Float[Tensor, "S D"], v: Float[Tensor, "S D"]) -> Tensor:
    """out = softmax(q k^T / sqrt(D)) v"""
    return torch.softmax(q @ k.T / math.sqrt(q.shape[1]), dim=1) @ v
