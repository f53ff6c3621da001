"""Codes of 8 bits, and a scale for each group of them, by the kernels that XLA generates."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Num

from jax_impls._runtime.contract import LARGEST_CODE, LEAST_SCALE, check_quantize

VENDOR = "XLA"


Codes = Num[Array, "M N"]
Scales = Float[Array, "G_M G_N"]


def coded(x: Float[Array, "M N"], rows: int, columns: int, to: str) -> tuple[Codes, Scales]:
    """The codes and scales of a matrix, computed in float32."""
    M, N = x.shape
    padded = jnp.pad(x, ((0, -M % rows), (0, -N % columns))).astype(jnp.float32)
    groups = padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // columns, columns)
    sizes = lax.bitcast_convert_type(jnp.abs(groups), jnp.int32)  # NaN is the largest; XLA on a CPU loses it in floats
    largest = lax.bitcast_convert_type(jnp.max(sizes, axis=(1, 3), initial=0), jnp.float32)
    scales = jnp.maximum(largest / LARGEST_CODE[to], LEAST_SCALE)
    quotient = (groups / scales[:, None, :, None]).reshape(padded.shape)[:M, :N]
    if to == "int8":
        return jnp.nan_to_num(jnp.round(quotient)).astype(jnp.int8), scales
    return quotient.astype(jnp.float8_e4m3fn), scales


@partial(jax.jit, static_argnames=("group", "to"))
def quantize(x: Float[Array, "M N"], *, group: str = "row", to: str = "float8_e4m3fn") -> tuple[Codes, Scales]:
    """(codes, scales): scale = max |x| / 448 (int8: 127) of a group, at least 2^-126; code = x / scale, rounded.

    x (M, N). A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float32. NaN becomes 0 in int8. Raises ValueError for other arguments.
    """
    rows, columns = check_quantize(x, group=group, to=to)
    return coded(x, rows, columns, to)
