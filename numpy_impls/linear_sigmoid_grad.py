"""The gradients of a linear layer with a sigmoid."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_linear, working
from numpy_impls.linear_sigmoid import logits
from numpy_impls.sigmoid import sigmoid

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", invalid="ignore")
def linear_sigmoid_grad(
    x: Float[np.ndarray, "M K"],
    weight: Float[np.ndarray, "N K"],
    bias: Float[np.ndarray, N],
    dy: Float[np.ndarray, "M N"],
    *,
    precision: str = "ieee",
) -> tuple[Float[np.ndarray, "M K"], Float[np.ndarray, "N K"], Float[np.ndarray, N]]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `linear_sigmoid` of x, weight and bias.

    float32, float16 or bfloat16, any strides; everything in float32, and the results are rounded.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32".
    """
    check_linear("linear_sigmoid_grad", x, weight, bias, dy, precision=precision, float64=True)
    y = sigmoid(logits(x, weight, bias))
    given, matrix, rows = (each.astype(working(x), copy=False) for each in (dy, weight, x))
    dz = given * y * (1.0 - y)
    dx, dweight = dz @ matrix, dz.T @ rows
    return dx.astype(x.dtype), dweight.astype(x.dtype), dz.sum(axis=0).astype(x.dtype)
