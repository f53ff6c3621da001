"""The gradients of root mean square normalization, by the kernels that XLA generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_norm_pair

VENDOR = "XLA"

Matrix = Float[Array, "M N"]
Vector = Float[Array, "N"]


@partial(jax.jit, static_argnames="eps")
def rms_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector]:
    """(dx, dweight): gradients of the sum of dy * y, where y is the `rms_norm` of x.

    With s = 1 / sqrt(mean of x^2 + eps), xhat = x s and g = dy weight: dx = s (g - xhat mean(g xhat)), dweight = sum
    over rows of dy xhat. x and dy (M, N), weight (N,).
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("rms_norm_grad", x, weight, dy=dy)
    wide, of_y = x.astype(jnp.float32), dy.astype(jnp.float32)
    s = lax.rsqrt(jnp.mean(wide * wide, axis=1, keepdims=True) + eps)
    normed, g = wide * s, of_y * weight.astype(jnp.float32)
    dx = s * (g - normed * jnp.mean(g * normed, axis=1, keepdims=True))
    return dx.astype(x.dtype), jnp.sum(of_y * normed, axis=0).astype(x.dtype)
