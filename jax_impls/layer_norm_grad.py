"""The gradients of layer normalization, by the kernels that XLA generates."""

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
def layer_norm_grad(x: Matrix, weight: Vector, dy: Matrix, *, eps: float) -> tuple[Matrix, Vector, Vector]:
    """(dx, dweight, dbias): gradients of the sum of dy * y, where y is the `layer_norm` of x.

    With s = 1 / sqrt(variance + eps), xhat = (x - mean) s and g = dy weight: dx = s (g - mean(g) - xhat mean(g xhat)),
    dweight = sum over rows of dy xhat, dbias = sum over rows of dy. x and dy (M, N), weight (N,).
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("layer_norm_grad", x, weight, dy=dy)
    wide, of_y = x.astype(jnp.float32), dy.astype(jnp.float32)
    centered = wide - jnp.mean(wide, axis=1, keepdims=True)
    s = lax.rsqrt(jnp.mean(centered * centered, axis=1, keepdims=True) + eps)
    normed, g = centered * s, of_y * weight.astype(jnp.float32)
    mean, projection = (jnp.mean(each, axis=1, keepdims=True) for each in (g, g * normed))
    dx = s * (g - mean - normed * projection)
    dweight, dbias = (jnp.sum(each, axis=0) for each in (of_y * normed, of_y))
    return dx.astype(x.dtype), dweight.astype(x.dtype), dbias.astype(x.dtype)
