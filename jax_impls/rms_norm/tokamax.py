"""Root mean square normalization by tokamax: a kernel of Pallas' Triton back end."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_norm
from jax_impls._runtime.tokamax import tokamax

PEER = "tokamax"
REQUIRES = "cuda"


@partial(jax.jit, static_argnames="eps")
def rms_norm(x: Float[Array, "M N"], weight: Float[Array, N], *, eps: float) -> Float[Array, "M N"]:
    """y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps).

    Computed in float32, and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm("rms_norm", x, weight=weight)
    if x.size == 0:
        return jnp.zeros(x.shape, x.dtype)
    result: jax.Array = tokamax.layer_norm(x, weight, None, epsilon=eps, subtract_mean=False, implementation="triton")
    return result
