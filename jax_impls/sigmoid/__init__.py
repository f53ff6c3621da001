"""Sigmoid: y = 1 / (1 + exp(-x)), for any shape, as one fused kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_elementwise, working

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@jax.jit
def sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float32, float16 or bfloat16, any shape.

    Computed in float32 and rounded once. `jax.nn.sigmoid` of a 16-bit array rounds every step: it errs by 2 ulp in
    bfloat16, and by hundreds where float16 is subnormal.

    Raises ValueError for other dtypes.
    """
    check_elementwise("sigmoid", x, float64=True)
    return stable_sigmoid(x.astype(working(x))).astype(x.dtype)


def stable_sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Sigmoid in the dtype of x: c - c r with z = exp(-|x|), r = z / (1 + z), and c = 1 for x >= 0, z for x < 0.

    r is the sigmoid of -|x|. The quotient corrects a term that is already accurate, so its rounding errors matter
    little. Nothing overflows. XLA on a CPU flushes subnormal results to zero.
    """
    z = jnp.exp(-jnp.abs(x))
    c = jnp.where(x < 0, z, 1.0)
    return c - c * (z / (1.0 + z))
