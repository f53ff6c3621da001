"""Matrix addition: c[i, j] = a[i, j] + b[i, j], for any strides."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


@np.errstate(over="ignore", invalid="ignore")
def matrix_add(a: Float[np.ndarray, "M N"], b: Float[np.ndarray, "M N"]) -> Float[np.ndarray, "M N"]:
    """c = a + b for matrices of float32, float16 or bfloat16: transposed, sliced or broadcast (stride 0) as they
    come.

    One addition and one rounding: NumPy adds 16-bit types in float32, whose 24 bits are enough (2 * 11 + 2) that
    rounding the float32 sum once more gives the correctly rounded result. `order="C"` makes the result row-major also
    where the inputs are not. Sums beyond the type's range are infinite, without a warning.

    Raises ValueError for other shapes and dtypes.
    """
    if a.ndim != 2:
        raise ValueError(f"matrix_add: a must be (M, N); got {a.shape}")
    if b.shape != a.shape:
        raise ValueError(f"matrix_add: a is (M, N)={a.shape}, so b must be {a.shape}; got {b.shape}")
    if a.dtype not in DTYPES:
        raise ValueError(f"matrix_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matrix_add: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    return np.add(a, b, order="C")
