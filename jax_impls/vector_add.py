"""Vector addition: c[i] = a[i] + b[i]."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_add

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@jax.jit
def vector_add(a: Float[Array, " N"], b: Float[Array, " N"]) -> Float[Array, " N"]:
    """c = a + b for vectors of float32, float16 or bfloat16; 16-bit types are added in float32 and rounded once.

    Raises ValueError for other shapes and dtypes.
    """
    check_add("vector_add", a, b, ndim=1, float64=True)
    return a + b
