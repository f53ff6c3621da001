"""Sigmoid: y = 1 / (1 + exp(-x)), for any shape, as one fused kernel."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

VENDOR = "XLA"


@jax.jit
def sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float32, float16 or bfloat16, any shape.

    float32 inside and one rounding at the end: `jax.nn.sigmoid` of a 16-bit array rounds every step, and is off by 2
    units in the last place of bfloat16, and by hundreds where float16 is subnormal.

    16-bit arrays of even size are read and written as 32-bit words of two numbers: XLA's kernel for 16-bit elements
    gives each thread too few bytes to keep the memory busy (on an H200 3.2 TB/s; packed 4.0).

    Raises ValueError for other dtypes.
    """
    if x.dtype.name not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"sigmoid: x must be float32, float16 or bfloat16; got {x.dtype}")
    if x.dtype == jnp.float32:
        return _accurate(x)
    if x.size % 2:
        return _short(x.astype(jnp.float32)).astype(x.dtype)
    words = lax.bitcast_convert_type(x.reshape(-1, 2), jnp.uint32)
    low, high = (_sixteen_bits(half.astype(jnp.uint16), x.dtype) for half in (words & 0xFFFF, words >> 16))
    return lax.bitcast_convert_type(low | (high << 16), x.dtype).reshape(x.shape)


def _accurate(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """float32. With z = exp(-|x|) and r = z / (1 + z), which is the sigmoid of -|x|, the result is 1 - r to the right
    of zero and z (1 - r) to the left: c - c r with c = 1 or z. The quotient then only corrects a term that is already
    accurate, so its rounding errors count little. Nothing overflows. XLA on a CPU flushes subnormal results to zero.
    """
    z = jnp.exp(-jnp.abs(x))
    c = jnp.where(x < 0, z, 1.0)
    return c - c * (z / (1.0 + z))


def _short(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """For results of 16 bits: 1 / (1 + exp(-x)) as exp(-8) / (exp(-8) + exp(-x - 8)). Without the eights, as in
    `lax.logistic`, the exponential overflows below -88, where bfloat16 is subnormal and not yet 0.
    """
    return math.exp(-8.0) / (math.exp(-8.0) + jnp.exp(-x - 8.0))


def _sixteen_bits(bits: Array, dtype: jnp.dtype) -> Array:
    """The sigmoid of 16-bit numbers given as bits, as bits in the low half of a 32-bit word."""
    x = lax.bitcast_convert_type(bits, dtype).astype(jnp.float32)
    return lax.bitcast_convert_type(_short(x).astype(dtype), jnp.uint16).astype(jnp.uint32)
