"""Sigmoid by XLA: like the plain implementation, but reads and writes two 16-bit numbers at a time, as 32-bit words."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_elementwise

VENDOR = "XLA"


@jax.jit
def sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float16 or bfloat16, any shape; float32 inside, rounded once.

    XLA's kernel for 16-bit elements accesses too few bytes per thread to keep the memory busy. An array of odd size is
    padded by one element.

    Raises ValueError for other dtypes; NotImplementedError for float32.
    """
    check_elementwise("sigmoid", x)
    if x.dtype == jnp.float32:
        raise NotImplementedError("sigmoid: words hold two float16 or bfloat16 numbers; got float32")
    pairs = jnp.pad(x.reshape(-1), (0, x.size % 2)).reshape(-1, 2)
    words = lax.bitcast_convert_type(pairs, jnp.uint32)
    low, high = (_sigmoid_of_bits(half.astype(jnp.uint16), x.dtype) for half in (words & 0xFFFF, words >> 16))
    return lax.bitcast_convert_type(low | (high << 16), x.dtype).reshape(-1)[: x.size].reshape(x.shape)


def _sigmoid_of_bits(bits: Array, dtype: jnp.dtype) -> Array:
    """Sigmoid of 16-bit numbers given as bits. The results are the low halves of 32-bit words.

    Computes exp(-8) / (exp(-8) + exp(-x - 8)). Without the factor exp(-8) the exponential would overflow for x < -88,
    where bfloat16 results are subnormal, not 0.
    """
    x = lax.bitcast_convert_type(bits, dtype).astype(jnp.float32)
    y = math.exp(-8.0) / (math.exp(-8.0) + jnp.exp(-x - 8.0))
    return lax.bitcast_convert_type(y.astype(dtype), jnp.uint16).astype(jnp.uint32)
