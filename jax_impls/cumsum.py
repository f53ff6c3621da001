"""Prefix sums of rows, by the kernels that XLA generates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_rows

VENDOR = "XLA"


@jax.jit
def cumsum(x: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """y[i, j] = sum over k <= j of x[i, k], x (M, N).

    float32, float16 or bfloat16; added in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_rows("cumsum", x)
    return jnp.cumsum(x, axis=1, dtype=jnp.float32).astype(x.dtype)
