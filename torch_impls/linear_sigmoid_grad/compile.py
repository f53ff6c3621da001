"""The gradients of a linear layer with a sigmoid, compiled by torch.compile."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.compiled import compiled
from torch_impls._runtime.contract import check_linear
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch (Inductor)"
REQUIRES = "cuda"


def _plain(weight: Tensor, x: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.sigmoid(torch.nn.functional.linear(x, weight, bias)).float()
    dz = (dy.float() * y * (1.0 - y)).to(dy.dtype)
    return dz @ weight, dz.mT @ x, dz.sum(0)


_gradients = compiled("linear_sigmoid_grad", _plain)


def linear_sigmoid_grad(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, N],
    dy: Float[Tensor, "M N"],
    *,
    precision: str = "ieee",
) -> tuple[Float[Tensor, "M K"], Float[Tensor, "N K"], Float[Tensor, N]]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `linear_sigmoid` of x, weight and bias.

    Row-major float32, float16 or bfloat16; in 16 bits dz = dy y (1 - y) is rounded.
    Precision: see `with_precision`. Raises ValueError for other shapes, dtypes and precisions; NotImplementedError for
    strides and for small weights.
    """
    check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision)
    return with_precision(precision, _gradients, weight, x, bias, dy)
