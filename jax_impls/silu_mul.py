"""A gated linear unit's product, silu(a) b or gelu(a) b, by the kernel that XLA generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_gated

VENDOR = "XLA"


def activated(a: Float[Array, "M N"], activation: str) -> Float[Array, "M N"]:
    """The activation of float32 numbers."""
    return a / (1.0 + jnp.exp(-a)) if activation == "silu" else jax.nn.gelu(a, approximate=True)


@partial(jax.jit, static_argnames="activation")
def silu_mul(a: Float[Array, "M N"], b: Float[Array, "M N"], *, activation: str = "silu") -> Float[Array, "M N"]:
    """y = silu(a) b, or gelu(a) b by the approximation with tanh.

    a and b (M, N).
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other arguments.
    """
    check_gated("silu_mul", a, b, activation=activation)
    return (activated(a.astype(jnp.float32), activation) * b.astype(jnp.float32)).astype(a.dtype)
