"""Attention over a cache in pages, one sequence and one head of its keys at a time."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int32

from numpy_impls._runtime.caches import check_paged_attention


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def paged_attention(
    q: Float[np.ndarray, "B S_q H D"],
    k_pages: Float[np.ndarray, "P page H_kv D"],
    v_pages: Float[np.ndarray, "P page H_kv D"],
    table: Int32[np.ndarray, "B pages"],
    lengths: Int32[np.ndarray, B],
    scale_k: Float[np.ndarray, ""] | None = None,
    scale_v: Float[np.ndarray, ""] | None = None,
    *,
    sm_scale: float | None = None,
) -> Float[np.ndarray, "B S_q H D"]:
    """o[b, i, h] = sum over j <= i + lengths[b] - S_q of softmax_j(sm_scale q[b, i, h] . k[b, j, h_kv]) v[b, j, h_kv].

    Key j of sequence b is k_pages[table[b, j // page], j % page]. Query head h reads key head h // (H // H_kv).
    `sm_scale` defaults to 1 / sqrt(D). A query that sees no key gives zeros. Slots without a token are not read.

    Dtypes: float32, float16 or bfloat16, any strides; computed in float32, and rounded once. table and lengths: int32.
    Pages of float8_e4m3fn have a scale each, of keys and of values: float32, of shape ().
    A NaN or an infinity among the last S_q - 1 values of a sequence may reach all its queries.

    Raises ValueError for other shapes and dtypes.
    """
    B, S_q, H, H_kv, _, D = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    out = np.zeros(q.shape, q.dtype)
    if out.size == 0:
        return out
    scale = np.float32(1.0 / math.sqrt(D) if sm_scale is None else sm_scale)
    of_keys, of_values = (np.float32(1.0 if each is None else each) for each in (scale_k, scale_v))
    for b in range(B):
        length = int(lengths[b])
        if length == 0:
            continue
        keys, values = (_tokens(pages, table[b], length) for pages in (k_pages, v_pages))  # [length, H_kv, D]
        hidden = ~np.tri(S_q, length, k=length - S_q, dtype=bool)
        for h in range(H):
            h_kv = h // (H // H_kv)
            s = (q[b, :, h].astype(np.float32) @ keys[:, h_kv].T) * (scale * of_keys)  # [S_q, length]
            s[hidden] = -np.inf
            p = np.exp(s - s.max(axis=1, keepdims=True))
            o = (p @ values[:, h_kv]) / p.sum(axis=1, keepdims=True) * of_values
            seeing = max(0, S_q - length)
            out[b, seeing:, h] = o[seeing:]
    return out


def _tokens(pages: np.ndarray, table: np.ndarray, length: int) -> np.ndarray:
    """The keys or values of a sequence in float32, (length, H_kv, D)."""
    used = pages[table[: -(-length // pages.shape[1])]].astype(np.float32)
    return used.reshape(-1, *pages.shape[2:])[:length]
