"""Sums of a matrix, of its columns or of its rows, by torch.sum."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_sum

VENDOR = "PyTorch"
DTYPES_BEYOND = ("float64",)


def sum(x: Float[Tensor, "M N"], *, axis: int | None = None) -> Float[Tensor, ""] | Float[Tensor, M] | Float[Tensor, N]:
    """The sum of all elements (axis None), of each column (0) or of each row (1) of x (M, N), any strides.

    float32, float16 or bfloat16; added in float32 and rounded once. Raises ValueError for other shapes, dtypes, axes.
    """
    check_sum("sum", x, axis, float64=True)
    return torch.sum(x) if axis is None else torch.sum(x, dim=axis)
