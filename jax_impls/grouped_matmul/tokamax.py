"""Products of each expert's rows with its weights by tokamax, in Pallas for Hopper (Mosaic GPU)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from jax_impls._runtime.experts import check_grouped_matmul
from jax_impls._runtime.tokamax import tokamax

PEER = "tokamax"
REQUIRES = "sm_90"


@jax.jit
def grouped_matmul(
    x: Float[Array, "T K"], weight: Float[Array, "E K N"], sizes: Int32[Array, E]
) -> Float[Array, "T N"]:
    """y[t, n] = sum over k of x[t, k] weight[e, k, n], where row t is among the sizes[e] rows of expert e.

    float16 and bfloat16, with sums in float32, rounded once. Raises ValueError for other shapes and dtypes,
    NotImplementedError for float32.
    """
    T, _, K, N = check_grouped_matmul(x, weight, sizes)
    if x.dtype == jnp.float32:
        raise NotImplementedError("grouped_matmul: tokamax's kernel takes float16 and bfloat16; got float32")
    if T * K * N == 0:
        return jnp.zeros((T, N), x.dtype)
    result: jax.Array = tokamax.ragged_dot(x, weight, sizes, implementation="mosaic")
    return result
