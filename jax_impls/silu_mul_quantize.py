"""The product of a gated linear unit as codes of 8 bits with a scale for each group, by kernels of XLA."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_codes, check_gated
from jax_impls.quantize import Codes, Scales, coded
from jax_impls.silu_mul import activated

VENDOR = "XLA"


@partial(jax.jit, static_argnames=("group", "to"))
def silu_mul_quantize(
    a: Float[Array, "M N"], b: Float[Array, "M N"], *, group: str = "row", to: str = "float8_e4m3fn"
) -> tuple[Codes, Scales]:
    """(codes, scales) of y = silu(a) b: scale = max |y| / 448 (int8: 127), at least 2^-126; code = y / scale, rounded.

    a and b (M, N). A group is a row, 128 columns of it, or 128 x 128.
    float32, float16 or bfloat16; computed in float32. NaN becomes 0 in int8. Raises ValueError for other arguments.
    """
    _, N = check_gated("silu_mul_quantize", a, b, activation="silu")
    rows, columns = check_codes("silu_mul_quantize", N, group=group, to=to)
    return coded(activated(a.astype(jnp.float32), "silu") * b.astype(jnp.float32), rows, columns, to)
