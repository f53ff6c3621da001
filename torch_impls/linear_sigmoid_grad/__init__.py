"""The gradients of a linear layer with a sigmoid by torch: cuBLAS computes three products, torch's kernels the rest."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_linear
from torch_impls._runtime.precision import with_precision
from torch_impls.linear_sigmoid import plain

VENDOR = "PyTorch (cuBLAS on a GPU)"
DTYPES_BEYOND = ("float64",)
Gradients = tuple[Tensor, Tensor, Tensor]


def gradients(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> Gradients:
    """The gradients of y = sigma(x weight^T + bias), by autograd."""
    dz = torch.ops.aten.sigmoid_backward(dy, plain(x, weight, bias))
    return dz @ weight, dz.mT @ x, dz.sum(0)


def linear_sigmoid_grad(
    x: Float[Tensor, "M K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, N],
    dy: Float[Tensor, "M N"],
    *,
    precision: str = "ieee",
) -> tuple[Float[Tensor, "M K"], Float[Tensor, "N K"], Float[Tensor, N]]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `linear_sigmoid` of x, weight and bias.

    float32, float16 or bfloat16, any strides. In 16 bits y and dz = dy y (1 - y) are rounded.
    Precision: see `with_precision`.

    Raises ValueError for other shapes, dtypes and precisions and for different devices, NotImplementedError for "tf32"
    on a CPU.
    """
    check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision, float64=True)
    return with_precision(precision, gradients, x, weight, bias, dy)
