"""Prefix sums of rows, in float64."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_rows


@np.errstate(over="ignore", invalid="ignore")
def cumsum(x: Float[np.ndarray, "M N"]) -> Float[np.ndarray, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k], x (M, N), any strides; the result is row-major.

    float32, float16 or bfloat16; added in float64 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_rows("cumsum", x)
    return np.cumsum(x, axis=1, dtype=np.float64).astype(x.dtype, order="C")
