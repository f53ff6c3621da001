"""Attention over a split sequence in a ring: keys and values are sent on while they are used."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_ring_attention
from jax_impls.ring_attention._blocks import attended, positions, seen

VENDOR = "XLA"


def ring_attention(
    q: Float[Array, "B H S D"],
    k: Float[Array, "B H_kv S D"],
    v: Float[Array, "B H_kv S D"],
    *,
    group: str,
    causal: bool = False,
) -> Float[Array, "B H S D"]:
    """This device's rows of attention over the sequence of all devices along the mesh axis `group`.

    Sequence, dtypes and errors: those of the plain implementation. Sums of blocks are merged in float32.
    Source: H. Liu, M. Zaharia, P. Abbeel, "Ring Attention with Blockwise Transformers", 2023; balanced shares: W.
    Brandon et al., "Striped Attention", 2023, and zigzag shares as in Llama 3's context parallelism.
    """
    _, _, _, S, _ = check_ring_attention(q, k, v)
    if q.size == 0:
        raise NotImplementedError("ring_attention: shard_map cannot compile attention without queries")
    ranks, rank = jax.lax.axis_size(group), jax.lax.axis_index(group)
    to_previous = [(each, (each - 1) % ranks) for each in range(ranks)]
    kv, total = jnp.stack((k, v)), None
    for step in range(ranks):
        following = jax.lax.ppermute(kv, group, to_previous) if step < ranks - 1 else kv
        source = (rank + step) % ranks
        visible = seen(positions(S, ranks, rank), positions(S, ranks, source)) if causal else None
        found = attended(q, kv, visible)
        total = found if total is None else total.plus(found)
        kv = following
    assert total is not None
    return total.result(q)
