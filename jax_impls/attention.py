"""Attention: o = softmax(q k^T * sm_scale) v, written out for XLA: a product, a fused softmax and a product."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

VENDOR = "XLA"


@partial(jax.jit, static_argnames=("causal", "sm_scale"))
def attention(
    q: Float[Array, "B H S_q D"],
    k: Float[Array, "B H_kv S_k D"],
    v: Float[Array, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Array, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    float32 with float32 products, or float16 and bfloat16. Scores, softmax (the row's maximum subtracted) and sums
    are float32; in 16 bits the numerators exp(s - max) are rounded to the type of v for the second product, and the
    output is rounded once. H is a multiple of H_kv: query head h reads key head h // (H // H_kv), and a group of
    query heads shares one product, so that k and v are never repeated. `sm_scale` defaults to 1 / sqrt(D). With
    `causal` query i sees the keys j <= i + S_k - S_q; a query that sees none gives zeros. The scores, B H S_q S_k
    float32 numbers, go through memory.

    Raises ValueError for other shapes and dtypes.
    """
    _check(q, k, v)
    B, H, S_q, D = q.shape
    H_kv, S_k = k.shape[1], k.shape[2]
    if q.size == 0 or S_k == 0:
        return jnp.zeros(q.shape, q.dtype)
    if sm_scale is None:
        sm_scale = 1.0 / math.sqrt(D)
    product = partial(
        jnp.einsum,
        precision=lax.Precision.HIGHEST if q.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    grouped = q.reshape(B, H_kv, H // H_kv, S_q, D)
    s = product("bhgqd,bhkd->bhgqk", grouped, k) * sm_scale
    if causal:
        s = jnp.where(jnp.tri(S_q, S_k, S_k - S_q, dtype=bool), s, -jnp.inf)
    row_max = s.max(axis=-1, keepdims=True)
    p = jnp.exp(s - jnp.where(row_max == -jnp.inf, 0.0, row_max))
    row_sum = p.sum(axis=-1, keepdims=True)
    o = product("bhgqk,bhkd->bhgqd", p.astype(v.dtype), v) / jnp.where(row_sum == 0.0, 1.0, row_sum)
    return o.reshape(q.shape).astype(q.dtype)


def _check(q: jax.Array, k: jax.Array, v: jax.Array) -> None:
    if q.ndim != 4:
        raise ValueError(f"attention: q must be (B, H, S_q, D); got {q.shape}")
    B, H, _, D = q.shape
    if k.ndim != 4 or k.shape[0] != B or k.shape[3] != D:
        raise ValueError(f"attention: q is (B, H, S_q, D)={q.shape}, so k must be ({B}, H_kv, S_k, {D}); got {k.shape}")
    if v.shape != k.shape:
        raise ValueError(f"attention: k is (B, H_kv, S_k, D)={k.shape}, so v must be {k.shape}; got {v.shape}")
    if H % k.shape[1] if k.shape[1] else H:
        raise ValueError(f"attention: H must be a multiple of H_kv; got H={H}, H_kv={k.shape[1]}")
    if q.dtype.name not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"attention: q must be float32, float16 or bfloat16; got {q.dtype}")
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise ValueError(f"attention: q is {q.dtype}, so {name} must be {q.dtype}; got {x.dtype}")
