"""Convolution of images by XLA, which calls cuDNN on a GPU."""

from __future__ import annotations

from functools import partial

import jax
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_conv2d, working

VENDOR = "XLA"
DTYPES_BEYOND = ("float64",)


@partial(jax.jit, static_argnames=("stride", "padding", "precision"))
def conv2d(
    x: Float[Array, "N H W C"],
    weight: Float[Array, "K R S C"],
    *,
    stride: int = 1,
    padding: int = 0,
    precision: str = "ieee",
) -> Float[Array, "N P Q K"]:
    """y[n, p, q, k] = sum over r, s, c of x[n, p stride + r - padding, q stride + s - padding, c] weight[k, r, s, c].

    Shapes: x (N, H, W, C), weight (K, R, S, C). Dtypes: float32, float16 or bfloat16. On a GPU cuDNN sums 16-bit
    products in float32; on a CPU the operands are widened first, because XLA may sum in 16 bits there.
    float32: "ieee" is `Precision.HIGHEST`; "tf32", only on a GPU, is `Precision.HIGH`.

    Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for "tf32" without a GPU.
    """
    check_conv2d(x, weight, stride=stride, padding=padding, precision=precision, float64=True)
    on_gpu = jax.default_backend() == "gpu"
    dtype = x.dtype
    if not on_gpu:
        x, weight = x.astype(working(x)), weight.astype(working(x))
    y = lax.conv_general_dilated(
        x,
        weight,
        window_strides=(stride, stride),
        padding=((padding, padding), (padding, padding)),
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
        precision=lax.Precision.HIGH if precision == "tf32" else lax.Precision.HIGHEST,
    )
    return y.astype(dtype)
