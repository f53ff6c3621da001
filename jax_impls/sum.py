"""Sums of a matrix, of its columns or of its rows, in float32."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_sum, working

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@partial(jax.jit, static_argnames=("axis",))
def sum(x: Float[Array, "M N"], *, axis: int | None = None) -> Float[Array, ""] | Float[Array, M] | Float[Array, N]:
    """The sum of all elements (axis None), of each column (0) or of each row (1) of x (M, N).

    float32, float16 or bfloat16; added in float32 and rounded once. Raises ValueError for other shapes, dtypes, axes.
    """
    check_sum("sum", x, axis, float64=True)
    return jnp.sum(x, axis=axis, dtype=working(x)).astype(x.dtype)
