"""Vector addition: c[i] = a[i] + b[i]."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


@np.errstate(over="ignore", invalid="ignore")
def vector_add(a: Float[np.ndarray, " N"], b: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """c = a + b for vectors of float32, float16 or bfloat16 with any stride.

    One addition and one rounding: NumPy adds 16-bit types in float32, whose 24 bits are enough (2 * 11 + 2) that
    rounding the float32 sum once more gives the correctly rounded result. Sums beyond the type's range are infinite,
    without a warning.

    Raises ValueError for other shapes and dtypes.
    """
    if a.ndim != 1:
        raise ValueError(f"vector_add: a must be (N,); got {a.shape}")
    if b.shape != a.shape:
        raise ValueError(f"vector_add: a is (N,)={a.shape}, so b must be {a.shape}; got {b.shape}")
    if a.dtype not in DTYPES:
        raise ValueError(f"vector_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"vector_add: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    return np.add(a, b)
