"""Softmax of each row of a matrix, compiled by torch.compile."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_rows

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"

_softmax = compiled("softmax", lambda x: torch.softmax(x, dim=1))


def softmax(x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:
    """y[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]), x (M, N), row-major; float32 inside, rounded once.

    Raises ValueError for other shapes and dtypes; NotImplementedError for strides and for small matrices.
    """
    check_rows("softmax", x)
    return _softmax(x)
