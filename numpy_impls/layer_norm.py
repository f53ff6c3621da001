"""Layer normalization of each row of a matrix."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_norm

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def layer_norm(
    x: Float[np.ndarray, "M N"], weight: Float[np.ndarray, N], bias: Float[np.ndarray, N], *, eps: float
) -> Float[np.ndarray, "M N"]:
    """y[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j], by the biased variance.

    x (M, N), weight and bias (N,), any strides; the result is row-major.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias, float64=True)
    if x.size == 0:
        return np.empty(x.shape, x.dtype)
    y = x.astype(np.float64, order="C")
    y = y - np.mean(y, axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(y * y, axis=1, keepdims=True) + eps)
    return (y * scale * weight.astype(np.float64) + bias.astype(np.float64)).astype(x.dtype)
