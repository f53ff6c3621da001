"""Sigmoid: y = 1 / (1 + exp(-x)), for any shape, as one fused kernel."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.arguments import check_elementwise

VENDOR = "XLA"


@jax.jit
def sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float32, float16 or bfloat16, any shape.

    Computed in float32 and rounded once: `jax.nn.sigmoid` of a 16-bit array rounds every step, and errs by 2 units in
    the last place of bfloat16, and by hundreds where float16 is subnormal.

    16-bit arrays of even size are read and written as 32-bit words of two numbers: XLA's kernel for 16-bit elements
    accesses too few bytes per thread to keep the memory busy.

    Raises ValueError for other dtypes.
    """
    check_elementwise("sigmoid", x)
    if x.dtype == jnp.float32:
        return sigmoid_float32(x)
    if x.size % 2:
        return _sigmoid_16_bit(x.astype(jnp.float32)).astype(x.dtype)
    words = lax.bitcast_convert_type(x.reshape(-1, 2), jnp.uint32)
    low, high = (_sigmoid_of_bits(half.astype(jnp.uint16), x.dtype) for half in (words & 0xFFFF, words >> 16))
    return lax.bitcast_convert_type(low | (high << 16), x.dtype).reshape(x.shape)


def sigmoid_float32(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Sigmoid in float32: c - c r with z = exp(-|x|), r = z / (1 + z), and c = 1 for x >= 0, z for x < 0.

    r is the sigmoid of -|x|. The quotient only corrects a term that is already accurate, so its rounding errors count
    little. Nothing overflows. XLA on a CPU flushes subnormal results to zero.
    """
    z = jnp.exp(-jnp.abs(x))
    c = jnp.where(x < 0, z, 1.0)
    return c - c * (z / (1.0 + z))


def _sigmoid_16_bit(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Sigmoid in float32 for 16-bit results: exp(-8) / (exp(-8) + exp(-x - 8)).

    Without the eights, as in `lax.logistic`, the exponential overflows below -88, where bfloat16 is subnormal, not 0.
    """
    return math.exp(-8.0) / (math.exp(-8.0) + jnp.exp(-x - 8.0))


def _sigmoid_of_bits(bits: Array, dtype: jnp.dtype) -> Array:
    """Sigmoid of 16-bit numbers given as bits; the result is bits in the low half of 32-bit words."""
    x = lax.bitcast_convert_type(bits, dtype).astype(jnp.float32)
    return lax.bitcast_convert_type(_sigmoid_16_bit(x).astype(dtype), jnp.uint16).astype(jnp.uint32)
