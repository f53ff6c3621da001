"""Softmax in Pallas for Hopper (Mosaic GPU): rows of 16-bit numbers that one warpgroup keeps in registers."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.arguments import check_hopper
from jax_impls._runtime.contract import check_rows
from jax_impls._runtime.mosaic import plgpu

REQUIRES = "sm_90"

VECTOR = 8  # 16-bit numbers in one 16-byte load
STEP = 128 * VECTOR  # numbers that a warpgroup loads at a time
LONGEST = 8 * STEP  # most numbers of a row: 64 in float32 registers of each thread


@jax.jit
def softmax(x: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """y[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k]), x (M, N), N a multiple of STEP (1024), at most LONGEST.

    float16 or bfloat16; float32 inside and one rounding at the end. Raises ValueError for other shapes and dtypes;
    NotImplementedError for float32, other N, and on anything but a Hopper GPU.
    """
    check_rows("softmax", x)
    if x.dtype == jnp.float32:
        raise NotImplementedError("softmax: this kernel takes float16 and bfloat16; got float32")
    if x.shape[1] % STEP or not 0 < x.shape[1] <= LONGEST:
        raise NotImplementedError(f"softmax: N must be a multiple of {STEP} up to {LONGEST}; got {x.shape[1]}")
    check_hopper("softmax")
    return _rows(x) if x.size else x


def _rows(x: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """Softmax of every row. A block of one warpgroup computes one row."""
    return plgpu.kernel(
        _kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0],),
        grid_names=("row",),
        kernel_name="softmax_pallas",
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(x)


def _kernel(x_gmem: Any, y_gmem: Any) -> None:
    """Loads a row into registers and reads it once.

    Exponentials are scaled by 2^16, because the hardware's 2^x gives 0 for subnormal results.
    """
    row = lax.axis_index("row")
    layout = plgpu.Layout.WG_STRIDED((x_gmem.shape[1],), vec_size=VECTOR)
    x = plgpu.load(x_gmem, (row,), layout=layout).astype(jnp.float32)
    e = lax.exp2((x - jnp.max(x)) * math.log2(math.e) + 16.0)
    y_gmem[row] = (e * (1.0 / jnp.sum(e))).astype(y_gmem.dtype)
