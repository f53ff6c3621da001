"""All ranks' rows times this rank's weight by XLA: an all-gather, then a product."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_matmul
from jax_impls.all_gather_matmul._terms import check_terms
from jax_impls.matmul import matmul

VENDOR = "XLA"


def all_gather_matmul(
    x: Float[Array, "M K"], w: Float[Array, "K N"], *, group: str, precision: str = "ieee"
) -> Float[Array, "ranks*M N"]:
    """X w, where X has the rows of x along the mesh axis `group`. Call this inside shard_map.

    float32, float16 or bfloat16. Precision: see jax_impls.matmul. Raises ValueError for other shapes, dtypes and
    precisions, NotImplementedError for "tf32" without a GPU and for K = 0.
    """
    check_matmul(x, w, precision=precision)
    check_terms(x)
    return matmul(jax.lax.all_gather(x, group, tiled=True), w, precision=precision)
