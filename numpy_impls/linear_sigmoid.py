"""A linear layer with a sigmoid: y = sigma(x W^T + b)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_linear, working
from numpy_impls.sigmoid import sigmoid

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", invalid="ignore")
def linear_sigmoid(
    x: Float[np.ndarray, "M K"],
    weight: Float[np.ndarray, "N K"],
    bias: Float[np.ndarray, N],
    *,
    precision: str = "ieee",
) -> Float[np.ndarray, "M N"]:
    """y[i, j] = sigma(sum over k of x[i, k] weight[j, k] + bias[j]), for float32, float16 or bfloat16, any strides.

    Products and sums are float32 and the result is rounded once. Narrower inputs are widened first, because NumPy's own
    16-bit product sums in 16 bits.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32".
    """
    check_linear("linear_sigmoid", x, weight, bias, precision=precision, float64=True)
    return sigmoid(logits(x, weight, bias)).astype(x.dtype, copy=False)


def logits(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """x weight^T + bias in the working type."""
    wide = (each.astype(working(x), copy=False) for each in (x, weight.T, bias))
    product, factor, added = wide
    return np.asarray(product @ factor + added)
