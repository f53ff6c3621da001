"""Matrix product: c = a b, by the BLAS that NumPy was built with; of float8, times a scale of a and one of b."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from jaxtyping import Float

DTYPES_BEYOND = ("float8_e4m3fn",)
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)


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

    Of float8_e4m3fn it is that times scale_a scale_b, in bfloat16; precision is then "promoted" or "fast", which are
    names for the sums of tensor cores.

    Products and sums are float32. Narrower inputs are widened first, since NumPy's own 16-bit product sums in 16 bits,
    and the result is rounded once.

    Raises ValueError for other shapes, dtypes, scales and precisions, NotImplementedError for "tf32", which no CPU BLAS
    computes.
    """
    if a.ndim != 2:
        raise ValueError(f"matmul: a must be (M, K); got {a.shape}")
    if b.ndim != 2 or b.shape[0] != a.shape[1]:
        raise ValueError(f"matmul: a is (M, K)={a.shape}, so b must be ({a.shape[1]}, N); got {b.shape}")
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul: a must be float32, float16, bfloat16 or float8_e4m3fn; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matmul: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    float8 = a.dtype == ml_dtypes.float8_e4m3fn
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        found = None if scale is None else (scale.shape, scale.dtype.name)
        if found != (((), "float32") if float8 else None):
            raise ValueError(f"matmul: {name} must be a float32 of shape () for float8, None for others; got {found}")
    allowed = ("promoted", "fast") if float8 else ("ieee", "tf32")
    if precision not in allowed:
        raise ValueError(f"matmul: precision must be {allowed[0]!r} or {allowed[1]!r} for {a.dtype}; got {precision!r}")
    if precision == "tf32":
        if a.dtype != np.float32:
            raise ValueError(f"matmul: precision 'tf32' is for float32 inputs; got {a.dtype}")
        raise NotImplementedError("matmul: precision 'tf32' needs NVIDIA's tensor cores; NumPy has only 'ieee'")
    c = a.astype(np.float32, copy=False) @ b.astype(np.float32, copy=False)
    return (c * (scale_a * scale_b)).astype(ml_dtypes.bfloat16) if float8 else c.astype(a.dtype, copy=False)
