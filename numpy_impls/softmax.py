"""Softmax of each row of a matrix."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_rows

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def softmax(x: Float[np.ndarray, "M N"]) -> Float[np.ndarray, "M N"]:
    """y[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]), x (M, N) of any strides; the result is row-major.

    float32, float16 or bfloat16; computed in float64 and rounded once, because NumPy's float32 exponential alone errs
    by up to 2.5 ulp. Raises ValueError for other shapes and dtypes.
    """
    check_rows("softmax", x, float64=True)
    y = x.astype(np.float64, order="C")
    y = np.exp(y - np.max(y, axis=1, keepdims=True, initial=-np.inf))
    return (y / np.sum(y, axis=1, keepdims=True)).astype(x.dtype)
