"""A residual connection, and root mean square normalization of its rows, by the kernel that XLA generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_norm_pair

VENDOR = "XLA"

Matrix = Float[Array, "M N"]


@partial(jax.jit, static_argnames="eps")
def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[Array, N], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps).

    x and residual (M, N), weight (N,). y is computed from the sum in float32.
    float32, float16 or bfloat16; computed in float32 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    r = x.astype(jnp.float32) + residual.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(r * r, axis=1, keepdims=True) + eps)
    return (r * scale * weight.astype(jnp.float32)).astype(x.dtype), r.astype(x.dtype)
