"""Root mean square normalization of each row of a matrix."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_norm

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def rms_norm(x: Float[np.ndarray, "M N"], weight: Float[np.ndarray, N], *, eps: float) -> Float[np.ndarray, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    x (M, N), weight (N,), any strides; the result is row-major.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm("rms_norm", x, weight=weight, float64=True)
    if x.size == 0:
        return np.empty(x.shape, x.dtype)
    y = x.astype(np.float64, order="C")
    scale = 1.0 / np.sqrt(np.mean(y * y, axis=1, keepdims=True) + eps)
    return (y * scale * weight.astype(np.float64)).astype(x.dtype)
