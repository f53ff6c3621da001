"""Layer normalization of each row of a matrix."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_norm, working

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@partial(jax.jit, static_argnames=("eps",))
def layer_norm(
    x: Float[Array, "M N"], weight: Float[Array, N], bias: Float[Array, N], *, eps: float
) -> Float[Array, "M N"]:
    """y[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j], by the biased variance.

    x (M, N), weight and bias (N,).
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm("layer_norm", x, weight=weight, bias=bias, float64=True)
    wide = working(x)
    y = x.astype(wide)
    y = y - jnp.mean(y, axis=1, keepdims=True)
    scale = lax.rsqrt(jnp.mean(y * y, axis=1, keepdims=True) + eps)
    return (y * scale * weight.astype(wide) + bias.astype(wide)).astype(x.dtype)
