"""Root mean square normalization of each row of a matrix."""

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
def rms_norm(x: Float[Array, "M N"], weight: Float[Array, N], *, eps: float) -> Float[Array, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    x (M, N), weight (N,).
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm("rms_norm", x, weight=weight, float64=True)
    wide = working(x)
    y = x.astype(wide)
    scale = lax.rsqrt(jnp.mean(y * y, axis=1, keepdims=True) + eps)
    return (y * scale * weight.astype(wide)).astype(x.dtype)
