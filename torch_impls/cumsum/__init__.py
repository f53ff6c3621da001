"""Prefix sums of rows, by torch.cumsum."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_rows

VENDOR = "PyTorch"


def plain(x: Tensor) -> Tensor:
    return torch.cumsum(x, dim=1, dtype=torch.float32).to(x.dtype)


def cumsum(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k], x (M, N) of any strides; the result is row-major.

    float32, float16 or bfloat16; x is copied to float32, because torch.cumsum adds in its operand's type on a GPU.
    Raises ValueError for other shapes and dtypes.
    """
    check_rows("cumsum", x)
    return plain(x).contiguous()
