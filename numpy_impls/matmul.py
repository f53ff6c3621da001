"""Matrix product: c = a b, by the BLAS that NumPy was built with."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


@np.errstate(over="ignore", invalid="ignore")
def matmul(
    a: Float[np.ndarray, "M K"], b: Float[np.ndarray, "K N"], *, precision: str = "ieee"
) -> Float[np.ndarray, "M N"]:
    """c[i, j] = sum over k of a[i, k] b[k, j], for float32, float16 or bfloat16 with any strides; K = 0 gives zeros.

    Products and sums are float32. 16-bit inputs are widened first, since NumPy's own 16-bit product sums in 16 bits,
    and the result is rounded once.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32", which no CPU BLAS
    computes.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {a.shape}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={a.shape}, so b must be ({a.shape[1]}, N); got {b.shape}")
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"matmul: precision must be 'ieee' or 'tf32'; got {precision!r}")
    if precision == "tf32":
        if a.dtype != np.float32:
            raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")
        raise NotImplementedError("matmul: precision 'tf32' needs NVIDIA's tensor cores; NumPy has only 'ieee'")
    c = a.astype(np.float32, copy=False) @ b.astype(np.float32, copy=False)
    return c.astype(a.dtype, copy=False)
