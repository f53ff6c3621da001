"""All ranks' rows times this rank's weight in a ring: the rows of the next rank are sent while those here are used."""

from __future__ import annotations

import jax
import jax.numpy as jnp
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
    Source: the collective matmul of "Overlap Communication with Dependent Computation via Decomposition in Large Deep
    Learning Models" (ASPLOS 2023), as JAX's documentation of shard_map writes it.
    """
    check_matmul(x, w, precision=precision)
    check_terms(x)
    ranks, rank = jax.lax.axis_size(group), jax.lax.axis_index(group)
    to_previous = [(each, (each - 1) % ranks) for each in range(ranks)]
    products = []
    for step in range(ranks):
        following = jax.lax.ppermute(x, group, to_previous) if step < ranks - 1 else x
        products.append(matmul(x, w, precision=precision))  # rows of rank + step
        x = following
    return jnp.roll(jnp.stack(products), rank, axis=0).reshape(-1, w.shape[1])
