"""Vector addition: c[i] = a[i] + b[i]."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

VENDOR = "XLA"


@jax.jit
def vector_add(a: Float[Array, " N"], b: Float[Array, " N"]) -> Float[Array, " N"]:
    """c = a + b for vectors of float32, float16 or bfloat16; 16-bit types are added in float32 and rounded once.

    Raises ValueError for other shapes and dtypes.
    """
    if a.ndim != 1:
        raise ValueError(f"vector_add: a must be (N,); got {a.shape}")
    if b.shape != a.shape:
        raise ValueError(f"vector_add: a is (N,)={a.shape}, so b must be {a.shape}; got {b.shape}")
    if a.dtype.name not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"vector_add: a must be float32, float16 or bfloat16; got {a.dtype}")
    if b.dtype != a.dtype:
        raise ValueError(f"vector_add: a is {a.dtype}, so b must be {a.dtype}; got {b.dtype}")
    return a + b
