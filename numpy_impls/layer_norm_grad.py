"""The gradients of layer normalization."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_norm_pair

Matrix = Float[np.ndarray, "M N"]
Vector = Float[np.ndarray, "N"]


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def layer_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector, Vector]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `layer_norm` of x.

    With s = 1 / sqrt(variance + eps), xhat = (x - mean) s and g = dy weight: dx = s (g - mean(g) - xhat mean(g xhat)),
    dweight = sum over rows of dy xhat, dbias = sum over rows of dy. x and dy (M, N), weight (N,), any strides.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("layer_norm_grad", x, weight, dy=dy)
    if x.size == 0:
        return np.empty(x.shape, x.dtype), np.zeros(weight.shape, x.dtype), np.zeros(weight.shape, x.dtype)
    wide, of_y = x.astype(np.float64, order="C"), dy.astype(np.float64, order="C")
    centered = wide - np.mean(wide, axis=1, keepdims=True)
    s = 1.0 / np.sqrt(np.mean(centered * centered, axis=1, keepdims=True) + eps)
    normed, g = centered * s, of_y * weight.astype(np.float64)
    mean, projection = (np.mean(each, axis=1, keepdims=True) for each in (g, g * normed))
    dx = s * (g - mean - normed * projection)
    return dx.astype(x.dtype), np.sum(of_y * normed, axis=0).astype(x.dtype), np.sum(of_y, axis=0).astype(x.dtype)
