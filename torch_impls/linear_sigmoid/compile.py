"""A linear layer with a sigmoid, compiled by torch.compile."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_linear
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"


def _plain(weight: Tensor, x: Tensor, bias: Tensor) -> Tensor:
    return torch.sigmoid(torch.nn.functional.linear(x, weight, bias))


_linear_sigmoid = compiled("linear_sigmoid", _plain)


def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, N], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """y[i, j] = sigma(sum over k of x[i, k] weight[j, k] + bias[j]), for row-major float32, float16 or bfloat16.

    Precision: see `with_precision`. Raises ValueError for other shapes, dtypes and precisions; NotImplementedError for
    strides and for small weights.
    """
    check_linear("linear_sigmoid", x, weight, bias, precision=precision)
    return with_precision(precision, _linear_sigmoid, weight, x, bias)
