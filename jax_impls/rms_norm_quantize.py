"""Rows over their root mean square as codes of 8 bits with a scale for each group, by kernels of XLA."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_codes, check_norm
from jax_impls.quantize import Codes, Scales, coded

VENDOR = "XLA"


@partial(jax.jit, static_argnames=("eps", "group", "to"))
def rms_norm_quantize(
    x: Float[Array, "M N"], weight: Float[Array, N], *, eps: float, group: str = "row", to: str = "float8_e4m3fn"
) -> tuple[Codes, Scales]:
    """(codes, scales) of y = rms_norm(x, weight): scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale.

    x (M, N), weight (N,). A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float32. NaN becomes 0 in int8. Raises ValueError for other arguments.
    """
    _, N = check_norm("rms_norm_quantize", x, weight=weight)
    rows, columns = check_codes("rms_norm_quantize", N, group=group, to=to)
    y = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(y * y, axis=1, keepdims=True) + eps)
    return coded(y * scale * weight.astype(jnp.float32), rows, columns, to)
