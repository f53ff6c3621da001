"""A linear layer with a sigmoid by torch: cuBLAS multiplies and adds the bias, a second kernel computes the sigmoid."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from torch_impls._runtime.contract import check_linear
from torch_impls._runtime.precision import with_precision

VENDOR = "PyTorch (cuBLAS on a GPU)"
DTYPES_BEYOND = ("float64",)


def plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias).sigmoid_()


def linear_sigmoid(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, N], *, precision: str = "ieee"
) -> Float[Tensor, "M N"]:
    """y[i, j] = sigma(sum over k of x[i, k] weight[j, k] + bias[j]), for float32, float16 or bfloat16, any strides.

    In 16 bits the sums are float32 and rounded once with the bias. The sigmoid is computed from the rounded sum.
    Precision: see `with_precision`.

    Raises ValueError for other shapes, dtypes and precisions and for different devices, NotImplementedError for "tf32"
    on a CPU.
    """
    check_linear("linear_sigmoid", x, weight, bias, precision=precision, float64=True)
    return with_precision(precision, plain, x, weight, bias)
