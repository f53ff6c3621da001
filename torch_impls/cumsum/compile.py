"""Prefix sums of rows, compiled by torch.compile."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_rows
from torch_impls.cumsum import plain

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_cumsum = compiled("cumsum", plain)


def cumsum(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k], x (M, N), row-major; float32 inside, rounded once.

    Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for few elements.
    """
    check_rows("cumsum", x)
    return _cumsum(x)
