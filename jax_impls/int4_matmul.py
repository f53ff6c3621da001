"""Product with weights of 4 bits, a scale for each group of 128: int4 codes and one product of XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, UInt8

from jax_impls._runtime.products import GROUP, check_int4_matmul

VENDOR = "XLA"


@jax.jit
def int4_matmul(
    x: Float[Array, "M K"],
    weight: UInt8[Array, "N K_2"],
    scale: Float[Array, "N G_K"],
    zero: UInt8[Array, "N G_K"] | None = None,
) -> Float[Array, "M N"]:
    """y[m, n] = sum over k of x[m, k] scale[n, k // 128] (code[n, k] - zero[n, k // 128]), in x's type.

    x (M, K) and scale (N, K / 128) float16 or bfloat16; weight (N, K / 2) uint8 has two codes a byte, the lower first;
    zero (N, K / 128) uint8, 8 if not given; sizes are rounded up. A byte is read as two numbers of XLA's type uint4.
    Weights are rounded once to x's type, sums are float32. K = 0 gives zeros. Raises ValueError for other arguments.
    """
    _, N, K = check_int4_matmul(x, weight, scale, zero)
    codes = lax.bitcast_convert_type(weight, jnp.uint4).reshape(N, 2 * weight.shape[1])[:, :K].astype(x.dtype)
    middle = 8 if zero is None else jnp.repeat(zero.astype(x.dtype), GROUP, 1)[:, :K]
    w = (codes - middle) * jnp.repeat(scale, GROUP, 1)[:, :K]
    product = lax.dot_general(x, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    return product.astype(x.dtype)
