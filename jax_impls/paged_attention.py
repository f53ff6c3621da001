"""Attention over a cache in pages, compiled by XLA: the pages are gathered, then a product, a softmax and a product."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jax_impls._runtime.caches import check_paged_attention

VENDOR = "XLA"


@partial(jax.jit, static_argnames=("sm_scale",))
def paged_attention(
    q: Float[Array, "B S_q H D"],
    k_pages: Float[Array, "P page H_kv D"],
    v_pages: Float[Array, "P page H_kv D"],
    table: Int32[Array, "B pages"],
    lengths: Int32[Array, B],
    scale_k: Float[Array, ""] | None = None,
    scale_v: Float[Array, ""] | None = None,
    *,
    sm_scale: float | None = None,
) -> Float[Array, "B S_q H D"]:
    """o[b, i, h] = sum over j <= i + lengths[b] - S_q of softmax_j(sm_scale q[b, i, h] . k[b, j, h_kv]) v[b, j, h_kv].

    Key j of sequence b is k_pages[table[b, j // page], j % page]. Query head h reads key head h // (H // H_kv).
    `sm_scale` defaults to 1 / sqrt(D). A query that sees no key gives zeros. Slots without a token do not count.

    Dtypes: float32 with float32 products, float16 or bfloat16; scores, softmax and sums are float32, and the numerators
    exp(s - max) are rounded to v's dtype. table and lengths: int32. A NaN or an infinity among the last S_q - 1 values
    of a sequence may reach all its queries. Pages of float8_e4m3fn have a scale each, of keys and of values: float32 of
    shape (); their numbers are exact in q's dtype.

    Raises ValueError for other shapes and dtypes.
    """
    B, S_q, H, H_kv, page, D = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    slots = table.shape[1] * page
    if q.size == 0 or slots == 0:
        return jnp.zeros(q.shape, q.dtype)
    at = jnp.arange(slots)
    held = at < lengths[:, None]  # [B, slots]
    used = jnp.where(held[:, ::page], table, 0)  # entries beyond a sequence's pages may be no page
    keys, values = (
        jnp.where(held[..., None, None], pages[used].reshape(B, slots, H_kv, D).astype(q.dtype), 0)
        for pages in (k_pages, v_pages)
    )
    product = partial(
        jnp.einsum,
        precision=lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    grouped = q.reshape(B, S_q, H_kv, H // H_kv, D)
    scale = 1.0 / math.sqrt(D) if sm_scale is None else sm_scale
    s = product("bihgd,bjhd->bhgij", grouped, keys) * (scale if scale_k is None else scale * scale_k)
    last = lengths[:, None] - S_q + jnp.arange(S_q)  # the last key that each query sees
    s = jnp.where((at <= last[..., None])[:, None, None], s, -jnp.inf)
    row_max = s.max(axis=-1, keepdims=True)
    p = jnp.exp(s - jnp.where(row_max == -jnp.inf, 0.0, row_max))
    blind = (last < 0)[:, None, None, :, None]
    row_sum = p.sum(axis=-1, keepdims=True)
    row_sum = jnp.where(blind, 1.0, row_sum)
    o = product("bhgij,bjhd->bhgid", p.astype(values.dtype), values) / row_sum
    o = o if scale_v is None else o * scale_v
    return o.transpose(0, 3, 1, 2, 4).reshape(q.shape).astype(q.dtype)
