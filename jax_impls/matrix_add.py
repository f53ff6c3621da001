"""Matrix addition: c[i, j] = a[i, j] + b[i, j]."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_add

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@jax.jit
def matrix_add(a: Float[Array, "M N"], b: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """c = a + b for matrices of float32, float16 or bfloat16; 16-bit types are added in float32 and rounded once.

    An array that came through DLPack keeps its layout: XLA reads a transposed operand in the same fused kernel.

    Raises ValueError for other shapes and dtypes.
    """
    check_add("matrix_add", a, b, ndim=2, float64=True)
    return a + b
