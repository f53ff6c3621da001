"""Matrix addition: c[i, j] = a[i, j] + b[i, j]."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

VENDOR = "XLA"


@jax.jit
def matrix_add(a: Float[Array, "M N"], b: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """c = a + b for matrices of float32, float16 or bfloat16; 16-bit types are added in float32 and rounded once.

    Strides are XLA's business: an array that came through DLPack keeps its layout, and a transposed operand is read
    by the same fused kernel.

    Raises ValueError for other shapes and dtypes.
    """
    if a.ndim != 2:
        raise ValueError(f"matrix_add: a must be (M, N); got {a.shape}")
    if b.shape != a.shape:
        raise ValueError(f"matrix_add: a is (M, N)={a.shape}, so b must be {a.shape}; got {b.shape}")
    if a.dtype.name not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"matrix_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"matrix_add: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    return a + b
