"""The gradients of a gated linear unit's product, by the kernel that XLA generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_gated
from jax_impls.silu_mul import activated

VENDOR = "XLA"

Matrix = Float[Array, "M N"]


@partial(jax.jit, static_argnames="activation")
def silu_mul_grad(a: Matrix, b: Matrix, dy: Matrix, *, activation: str = "silu") -> tuple[Matrix, Matrix]:
    """(da, db): gradients of the sum of dy * y, where y is the `silu_mul` of a and b.

    a, b and dy (M, N); silu's derivative is written out, gelu's is JAX's.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other arguments.
    """
    check_gated("silu_mul_grad", a, b, dy, activation=activation)
    wide, factor, of_y = (each.astype(jnp.float32) for each in (a, b, dy))
    if activation == "silu":
        s = 1.0 / (1.0 + jnp.exp(-wide))
        active, slope = wide * s, s * (1.0 + wide * (1.0 - s))
    else:
        active, backward = jax.vjp(partial(activated, activation=activation), wide)
        (slope,) = backward(jnp.ones_like(wide))
    return (of_y * factor * slope).astype(a.dtype), (of_y * active).astype(a.dtype)
