"""Softmax of each row of a matrix, by torch.softmax."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_rows

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float64",)


def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]), x (M, N) of any strides; the result is row-major.

    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_rows("softmax", x, float64=True)
    return torch.softmax(x.contiguous(), dim=1)
