"""Vector addition: c[i] = a[i] + b[i]."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_add

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", invalid="ignore")
def vector_add(a: Float[np.ndarray, " N"], b: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """c = a + b for vectors of float32, float16 or bfloat16 with any stride.

    16-bit types: NumPy adds in float32. Its 24 bits suffice (at least 2 * 11 + 2) for the rounded float32 sum to be the
    correctly rounded result. Sums beyond the dtype's range are infinite, without a warning.

    Raises ValueError for other shapes and dtypes.
    """
    check_add("vector_add", a, b, ndim=1, float64=True)
    return np.add(a, b)
