"""The gradients of root mean square normalization."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_norm_pair

Matrix = Float[np.ndarray, "M N"]
Vector = Float[np.ndarray, "N"]


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def rms_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector]:
    """(dx, dweight): gradients of the sum of dy * y, where y is the `rms_norm` of x.

    With s = 1 / sqrt(mean of x^2 + eps), xhat = x s and g = dy weight: dx = s (g - xhat mean(g xhat)), dweight = sum
    over rows of dy xhat. x and dy (M, N), weight (N,), any strides.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("rms_norm_grad", x, weight, dy=dy)
    if x.size == 0:
        return np.empty(x.shape, x.dtype), np.zeros(weight.shape, x.dtype)
    wide, of_y = x.astype(np.float64, order="C"), dy.astype(np.float64, order="C")
    s = 1.0 / np.sqrt(np.mean(wide * wide, axis=1, keepdims=True) + eps)
    normed, g = wide * s, of_y * weight.astype(np.float64)
    dx = s * (g - normed * np.mean(g * normed, axis=1, keepdims=True))
    return dx.astype(x.dtype), np.sum(of_y * normed, axis=0).astype(x.dtype)
