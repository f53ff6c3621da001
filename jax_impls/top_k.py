"""The k largest numbers of each row and their indices, by jax.lax.top_k."""

from __future__ import annotations

from functools import partial

import jax
from jax import lax
from jaxtyping import Array, Float, Int32

from jax_impls._runtime.contract import check_top_k

VENDOR = "XLA"


@partial(jax.jit, static_argnames=("k",))
def top_k(x: Float[Array, "M N"], *, k: int) -> tuple[Float[Array, "M k"], Int32[Array, "M k"]]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    x (M, N), k from 1 to N. float32, float16 or bfloat16. A NaN with the sign bit is less than all numbers. Raises
    ValueError for other arguments.
    """
    check_top_k(x, k)
    values, indices = lax.top_k(x, k)
    return values, indices
