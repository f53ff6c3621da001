"""Attention over a split sequence by XLA: an all-gather of keys and values, then attention with a mask of positions."""

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

    Causal: the first S // 2 rows of all devices come first, in their order, then the other rows in reverse order of the
    devices. float32, float16 or bfloat16; scores, softmax and sums in float32. Call this inside shard_map.
    Raises ValueError for other shapes and dtypes, NotImplementedError for an empty q: shard_map cannot compile a
    function that ignores all its operands.
    """
    _, _, _, S, _ = check_ring_attention(q, k, v)
    if q.size == 0:
        raise NotImplementedError("ring_attention: shard_map cannot compile attention without queries")
    kv = jax.lax.all_gather(jnp.stack((k, v)), group, axis=3, tiled=True)
    visible = None
    if causal:
        ranks, rank = jax.lax.axis_size(group), jax.lax.axis_index(group)
        everywhere = jnp.concatenate([positions(S, ranks, jnp.int32(each)) for each in range(ranks)])
        visible = seen(positions(S, ranks, rank), everywhere)
    return attended(q, kv, visible).result(q)
