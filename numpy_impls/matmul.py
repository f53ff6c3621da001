"""Matrix product c = a b by NumPy's BLAS; for float8 times a scale of a and one of b."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_matmul, working

DTYPES_BEYOND = ("float8_e4m3fn", "float64")


@np.errstate(over="ignore", invalid="ignore")
def matmul(
    a: Float[np.ndarray, "M K"],
    b: Float[np.ndarray, "K N"],
    scale_a: Float[np.ndarray, ""] | None = None,
    scale_b: Float[np.ndarray, ""] | None = None,
    *,
    precision: str = "ieee",
) -> Float[np.ndarray, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j], for float32, float16 or bfloat16 with any strides; K = 0 gives zeros.

    float8_e4m3fn: scale_a * scale_b * a b in bfloat16. Its precisions "promoted" and "fast" select how tensor cores
    sum; here both are float32 sums.

    Products and sums are float32 and the result is rounded once. Narrower inputs are widened first, because NumPy's
    own 16-bit product sums in 16 bits.

    Raises ValueError for other shapes, dtypes, scales and precisions, NotImplementedError for "tf32", which no CPU BLAS
    computes.
    """
    check_matmul(a, b, scale_a, scale_b, precision=precision, float8=True, float64=True)
    c = a.astype(working(a), copy=False) @ b.astype(working(a), copy=False)
    if a.dtype == ml_dtypes.float8_e4m3fn:
        return (c * (scale_a * scale_b)).astype(ml_dtypes.bfloat16)
    return c.astype(a.dtype, copy=False)
