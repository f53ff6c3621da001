"""Sigmoid in Pallas for Hopper (Mosaic GPU): 16-bit types, where XLA's exponential and division keep memory waiting."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

REQUIRES = "sm_90"

LANES = 8  # 16-bit numbers in the 16 bytes that a thread reads at a time
BLOCK = 128 * LANES  # what a block, one warpgroup, takes


@jax.jit
def sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float16 or bfloat16, any shape; float32 inside and one rounding at the end.

    Sizes that are no multiple of BLOCK, which is 1024, XLA copies into a larger array first, and the result out of one.

    Raises ValueError for other dtypes; NotImplementedError for float32, where XLA's own kernel is bound by memory, and
    on anything but a Hopper GPU.
    """
    if x.dtype.name not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"sigmoid: x must be float32, float16 or bfloat16; got {x.dtype}")
    if x.dtype == jnp.float32:
        raise NotImplementedError("sigmoid: float32 is left to XLA; this kernel takes float16 and bfloat16")
    device = jax.devices()[0]
    if getattr(device, "compute_capability", None) != "9.0":
        raise NotImplementedError(f"sigmoid: needs a Hopper GPU (compute capability 9.0); JAX runs on {device}")
    if x.size == 0:
        return x
    rows = jnp.pad(x.reshape(-1), (0, -x.size % BLOCK)).reshape(-1, BLOCK)
    return _rows(rows).reshape(-1)[: x.size].reshape(x.shape)


def _rows(x: Float[Array, "rows {BLOCK}"]) -> Float[Array, "rows {BLOCK}"]:
    """A block computes a row."""
    return plgpu.kernel(
        _kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0],),
        grid_names=("row",),
        kernel_name="sigmoid_pallas",
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(x)


def _kernel(x_gmem: Any, y_gmem: Any) -> None:
    """From memory to registers and back, without a stay in shared memory: nothing is used twice.

    1 / d is the square of 1 / sqrt(d), which is one instruction, as is 2^x; a division would be seven. Their errors are
    some 2^-21. With a factor of 2^-16 in d neither it overflows nor its root is flushed to zero before the result is
    below bfloat16's smallest number.
    """
    row = lax.axis_index("row")
    x = plgpu.load(x_gmem, (row,), layout=plgpu.Layout.WG_STRIDED((BLOCK,), vec_size=LANES)).astype(jnp.float32)
    root = lax.rsqrt(lax.exp2(x * -math.log2(math.e) - 16.0) + 2.0**-16) * 2.0**-8
    y_gmem[row] = (root * root).astype(y_gmem.dtype)
