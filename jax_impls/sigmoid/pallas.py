"""Sigmoid in Pallas for Hopper (Mosaic GPU) in 16 bits, where XLA's exponential and division limit the bandwidth."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.arguments import check_hopper
from jax_impls._runtime.contract import check_elementwise
from jax_impls._runtime.mosaic import plgpu

REQUIRES = "sm_90"

VECTOR = 8  # 16-bit numbers in one 16-byte load
BLOCK = 128 * VECTOR  # numbers per block: one warpgroup, one load per thread


@jax.jit
def sigmoid(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """y = 1 / (1 + exp(-x)) for float16 or bfloat16, any shape; float32 inside and one rounding at the end.

    If the size is not a multiple of BLOCK (1024), XLA first copies x into a padded array, and finally copies the result
    out of one.

    Raises ValueError for other dtypes; NotImplementedError for float32, and on anything but a Hopper GPU.
    """
    check_elementwise("sigmoid", x)
    if x.dtype == jnp.float32:
        raise NotImplementedError("sigmoid: this kernel takes float16 and bfloat16; got float32")
    check_hopper("sigmoid")
    if x.size == 0:
        return x
    rows = jnp.pad(x.reshape(-1), (0, -x.size % BLOCK)).reshape(-1, BLOCK)
    return _rows(rows).reshape(-1)[: x.size].reshape(x.shape)


def _rows(x: Float[Array, "rows {BLOCK}"]) -> Float[Array, "rows {BLOCK}"]:
    """Sigmoid of every row. A block computes one row."""
    return plgpu.kernel(
        _kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0],),
        grid_names=("row",),
        kernel_name="sigmoid_pallas",
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(x)


def _kernel(x_gmem: Any, y_gmem: Any) -> None:
    """Loads a row into registers, without shared memory, because nothing is read twice.

    1 / d is computed as the square of 1 / sqrt(d): 1 / sqrt(d) and 2^x are one instruction each, a division takes
    seven. The errors are about 2^-21. The factor of 2^-16 in d keeps it from overflowing, and its root from being
    flushed to zero, until the result is below bfloat16's smallest number.
    """
    row = lax.axis_index("row")
    x = plgpu.load(x_gmem, (row,), layout=plgpu.Layout.WG_STRIDED((BLOCK,), vec_size=VECTOR)).astype(jnp.float32)
    root = lax.rsqrt(lax.exp2(x * -math.log2(math.e) - 16.0) + 2.0**-16) * 2.0**-8
    y_gmem[row] = (root * root).astype(y_gmem.dtype)
