"""Softmax of each row of a matrix."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_rows, working

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@jax.jit
def softmax(x: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """y[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]), x (M, N).

    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_rows("softmax", x, float64=True)
    y = x.astype(working(x))
    y = jnp.exp(y - jnp.max(y, axis=1, keepdims=True, initial=-jnp.inf))
    return (y / jnp.sum(y, axis=1, keepdims=True)).astype(x.dtype)
