"""Sigmoid: y = 1 / (1 + exp(-x)), for any shape."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_elementwise

DTYPES_BEYOND = ("float64",)

BLOCK = 1 << 15
"""Elements per step: the float64 temporary (256 KiB) stays in the cache."""


@np.errstate(over="ignore", under="ignore")
def sigmoid(x: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float32, float16 or bfloat16, any shape and strides; the result is row-major.

    Computed in float64 and rounded at the end, because NumPy's float32 exponential alone errs by up to 2.5 ulp. float64
    also has the range: exp(-x) overflows only where y is below the smallest subnormal of every dtype.

    Raises ValueError for other dtypes.
    """
    check_elementwise("sigmoid", x, float64=True)
    y = np.empty(x.shape, x.dtype)
    source, target = x.reshape(-1), y.reshape(-1)
    for start in range(0, x.size, BLOCK):
        z = source[start : start + BLOCK].astype(np.float64)
        np.exp(np.negative(z, out=z), out=z)
        z += 1
        target[start : start + BLOCK] = np.reciprocal(z, out=z)
    return y
