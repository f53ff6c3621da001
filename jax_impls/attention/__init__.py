"""Attention, o = softmax(q k^T * sm_scale) v, compiled by XLA: a product, a fused softmax and a product."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_attention, check_window, working

VENDOR = "XLA"
DTYPES_BEYOND = ("float8_e4m3fn", "float64")
OPTIONS_BEYOND = ("window",)


@partial(jax.jit, static_argnames=("causal", "sm_scale", "window"))
def attention(
    q: Float[Array, "B H S_q D"],
    k: Float[Array, "B H_kv S_k D"],
    v: Float[Array, "B H_kv S_k D"],
    scale_q: Float[Array, ""] | None = None,
    scale_k: Float[Array, ""] | None = None,
    scale_v: Float[Array, ""] | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> Float[Array, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    Dtypes: float32 with float32 products, float16 or bfloat16. Scores, softmax (the row's maximum subtracted) and sums
    are float32. In 16 bits the numerators exp(s - max) are rounded to v's dtype for the second product, and the output
    is rounded once. H is a multiple of H_kv: query head h reads key head h // (H // H_kv). A group of query heads is
    one product, without a copy of k and v. `sm_scale` defaults to 1 / sqrt(D). With `causal` query i sees the keys
    j <= i + S_k - S_q, with `window` only that many up to its own; a query that sees none gives zeros, one whose keys
    all score minus infinity gives NaN. The scores, B H S_q S_k float32 numbers, go through memory.

    float8_e4m3fn: q, k and v are each multiplied by a scale, and the output is bfloat16. The products are computed in
    bfloat16, in which float8 numbers are exact.

    Raises ValueError for other shapes and dtypes.
    """
    check_attention(q, k, v, (scale_q, scale_k, scale_v), float64=True)
    B, H, S_q, D = q.shape
    H_kv, S_k = k.shape[1], k.shape[2]
    near = check_window("attention", window, causal, S_k)
    if q.size == 0 or S_k == 0:
        return jnp.zeros(q.shape, q.dtype if scale_q is None else jnp.bfloat16)
    scale: jax.Array | float = 1.0 / math.sqrt(D) if sm_scale is None else sm_scale
    if scale_q is not None and scale_k is not None:
        q, k, v = (x.astype(jnp.bfloat16) for x in (q, k, v))
        scale = scale * scale_q * scale_k
    product = partial(
        jnp.einsum,
        precision=lax.Precision.HIGHEST if q.dtype in (jnp.float32, jnp.float64) else None,
        preferred_element_type=working(q),
    )
    grouped = q.reshape(B, H_kv, H // H_kv, S_q, D)
    s = product("bhgqd,bhkd->bhgqk", grouped, k) * scale
    if causal:
        s = jnp.where(visible(S_q, S_k, near), s, -jnp.inf)
    row_max = lax.stop_gradient(s.max(axis=-1, keepdims=True))  # cancels in the result
    p = jnp.exp(s - jnp.where(row_max == -jnp.inf, 0.0, row_max))
    row_sum = p.sum(axis=-1, keepdims=True)
    blind = jnp.arange(S_q)[:, None] < (S_q - S_k if causal else 0)  # queries that see no key
    row_sum = jnp.where(row_sum == 0.0, jnp.where(blind, 1.0, 0.0), row_sum)  # 0 / 1, and 0 / 0 for scores of -inf
    o = product("bhgqk,bhkd->bhgqd", p.astype(v.dtype), v) / row_sum
    if scale_v is not None:
        o = o * scale_v
    return o.reshape(q.shape).astype(q.dtype)


def visible(S_q: int, S_k: int, window: int) -> jax.Array:
    """The mask (S_q, S_k) of the keys that each query sees: up to its own, and only `window` of them if that is not 0.

    It is computed from indices inside other kernels.
    """
    seen = jnp.tri(S_q, S_k, S_k - S_q, dtype=bool)
    return seen & ~jnp.tri(S_q, S_k, S_k - S_q - window, dtype=bool) if window else seen
