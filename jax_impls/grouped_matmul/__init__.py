"""Products of each expert's rows with its weights, compiled by XLA: jax.lax.ragged_dot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jax_impls._runtime.experts import check_grouped_matmul

VENDOR = "XLA"


@jax.jit
def grouped_matmul(
    x: Float[Array, "T K"], weight: Float[Array, "E K N"], sizes: Int32[Array, E]
) -> Float[Array, "T N"]:
    """y[t, n] = sum over k of x[t, k] weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    The rows are in the order of the experts; sizes are not negative, and their sum is T.

    Dtypes: float32 with float32 products, float16 or bfloat16 with sums in float32, rounded once. sizes: int32.
    Raises ValueError for other shapes and dtypes.
    """
    T, _, K, N = check_grouped_matmul(x, weight, sizes)
    if T * K * N == 0:
        return jnp.zeros((T, N), x.dtype)
    precision = lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    sums = lax.ragged_dot(x, weight, sizes, precision=precision, preferred_element_type=jnp.float32)
    return sums.astype(x.dtype)
