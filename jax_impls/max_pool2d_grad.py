"""The gradient of max pooling by XLA: JAX differentiates the pooling."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_max_pool2d_grad

VENDOR = "XLA"


@partial(jax.jit, static_argnames=("window", "stride", "padding"))
def max_pool2d_grad(
    x: Float[Array, "N H W C"],
    dy: Float[Array, "N P Q C"],
    *,
    window: tuple[int, int],
    stride: int = 1,
    padding: int = 0,
) -> Float[Array, "N H W C"]:
    """dx[n, h, w, c]: the sum of dy[n, p, q, c] over the windows whose largest pixel is x[n, h, w, c].

    If pixels of a window are equal, the first one counts, row by row. A NaN in x is not specified.

    Shapes: x (N, H, W, C), dy (N, P, Q, C); window (R, S), with padding at most half of it. Dtypes: float32, float16 or
    bfloat16, the same for both; sums in float32, rounded once.

    Raises ValueError for other shapes, windows and dtypes.
    """
    check_max_pool2d_grad(x, dy, window=window, stride=stride, padding=padding)
    border = ((0, 0), (padding, padding), (padding, padding), (0, 0))

    def pooled(images: Array) -> Array:
        return lax.reduce_window(images, -jnp.inf, lax.max, (1, *window, 1), (1, stride, stride, 1), border)

    _, gradient = jax.vjp(pooled, x.astype(jnp.float32))
    return gradient(dy.astype(jnp.float32))[0].astype(x.dtype)
