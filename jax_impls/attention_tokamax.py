"""Attention by tokamax: its kernel of Pallas' Triton back end, after FlashAttention-2."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import tokamax
from jaxtyping import Array, Float

from jax_impls._arguments import check_attention

PEER = "tokamax"
REQUIRES = "cuda"


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

    The library takes (B, S, H, D): the transposes around it are copies, and part of the call.
    Raises ValueError for other shapes and dtypes; NotImplementedError for float32, for what the library refuses, and
    with `causal` for S_q other than S_k, where its mask is aligned to the first key.
    """
    check_attention(q, k, v)
    if q.dtype == jnp.float32:
        raise NotImplementedError("attention: tokamax's kernel takes float16 and bfloat16; got float32")
    if causal and q.shape[2] != k.shape[2]:
        raise NotImplementedError(f"attention: causal needs S_q = S_k; got {q.shape[2]} and {k.shape[2]}")
    if q.size == 0 or k.shape[2] == 0:
        return jnp.zeros(q.shape, q.dtype)
    o: jax.Array = tokamax.dot_product_attention(
        *(x.swapaxes(1, 2) for x in (q, k, v)), scale=sm_scale, is_causal=causal, implementation="triton"
    )
    return o.swapaxes(1, 2)
