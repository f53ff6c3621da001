"""Sigmoid by torch.sigmoid: y = 1 / (1 + exp(-x)), for any shape."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

VENDOR = "PyTorch"


def sigmoid(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float32, float16 or bfloat16, any shape and strides; the result is row-major.

    16-bit types are computed in float32 and rounded once. float32 on a CPU is off by up to 2.5 units in the last
    place. For x < -88.7 exp(-x) overflows and y is 0, although float32 and bfloat16 have subnormals there. Raises
    ValueError for other dtypes.
    """
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"sigmoid: x must be float32, float16 or bfloat16; got {x.dtype}")
    if x.is_contiguous():
        return torch.sigmoid(x)
    return torch.sigmoid(x, out=x.new_empty(x.shape))
