"""The product with K split over the ranks, in a ring: a sum is sent on while its next term is computed."""

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

    The sum of device r's rows starts on device r + 1 and ends on r. float32, float16 or bfloat16; each sum is rounded.
    Precision: see jax_impls.matmul. Raises ValueError for other shapes, dtypes and precisions, NotImplementedError for
    "tf32" without a GPU and for K = 0.
    Source: the collective matmul of "Overlap Communication with Dependent Computation via Decomposition in Large Deep
    Learning Models" (ASPLOS 2023), as JAX's documentation of shard_map writes it.
    """
    M, N, K = check_split_matmul(x, w, jax.lax.axis_size(group), precision=precision)
    if K == 0:
        raise NotImplementedError("matmul_reduce_scatter: shard_map cannot compile a product with K=0")
    ranks, rank = jax.lax.axis_size(group), jax.lax.axis_index(group)
    to_next = [(each, (each + 1) % ranks) for each in range(ranks)]
    acc = None
    for step in range(1, ranks + 1):
        rows = jax.lax.dynamic_slice_in_dim(x, (rank - step) % ranks * M, M)
        product = matmul(rows, w, precision=precision)
        acc = product if acc is None else product + jax.lax.ppermute(acc, group, to_next)
    return acc.reshape(M, N)
