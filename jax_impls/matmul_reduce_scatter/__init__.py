"""The product with K split over the ranks, by XLA: a product, then a reduce-scatter of its rows."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_split_matmul
from jax_impls.matmul import matmul

VENDOR = "XLA"


def matmul_reduce_scatter(
    x: Float[Array, "ranks*M K"], w: Float[Array, "K N"], *, group: str, precision: str = "ieee"
) -> Float[Array, "M N"]:
    """The sum of x w along the mesh axis `group`: device r gets rows r M to (r + 1) M - 1. Call this inside shard_map.

    float32, float16 or bfloat16. Precision: see jax_impls.matmul. Raises ValueError for other shapes, dtypes and
    precisions, NotImplementedError for "tf32" without a GPU and for K = 0: shard_map cannot compile a function
    that ignores all its operands.
    """
    check_split_matmul(x, w, jax.lax.axis_size(group), precision=precision)
    if x.shape[1] == 0:
        raise NotImplementedError("matmul_reduce_scatter: shard_map cannot compile a product with K=0")
    return jax.lax.psum_scatter(matmul(x, w, precision=precision), group, tiled=True)
