"""Max pooling of images by XLA."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_max_pool2d

VENDOR = "XLA"


@partial(jax.jit, static_argnames=("window", "stride", "padding"))
def max_pool2d(
    x: Float[Array, "N H W C"], *, window: tuple[int, int], stride: int = 1, padding: int = 0
) -> Float[Array, "N P Q C"]:
    """y[n, p, q, c] = max over r < R, s < S of x[n, p stride + r - padding, q stride + s - padding, c], inside x.

    Shapes: x (N, H, W, C); window (R, S), with padding at most half of it. Dtypes: float32, float16 or bfloat16.
    NaN is larger than all numbers.

    Raises ValueError for other shapes, windows and dtypes.
    """
    check_max_pool2d(x, window=window, stride=stride, padding=padding)
    border = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, *window, 1), (1, stride, stride, 1), border)
