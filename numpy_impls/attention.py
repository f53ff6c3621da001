"""Attention: o = softmax(q k^T * sm_scale) v, one head and one block of queries at a time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_attention, check_window, working
from numpy_impls._runtime.masks import visible

DTYPES_BEYOND = ("float8_e4m3fn", "float64")
OPTIONS_BEYOND = ("window",)

BLOCK_M = 128
"""Queries per step: the scores in memory are (BLOCK_M, S_k), never (S_q, S_k)."""


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def attention(
    q: Float[np.ndarray, "B H S_q D"],
    k: Float[np.ndarray, "B H_kv S_k D"],
    v: Float[np.ndarray, "B H_kv S_k D"],
    scale_q: Float[np.ndarray, ""] | None = None,
    scale_k: Float[np.ndarray, ""] | None = None,
    scale_v: Float[np.ndarray, ""] | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> Float[np.ndarray, "B H S_q D"]:
    """o[b, h, i] = sum over visible keys j of softmax_j(q[b, h, i] . k[b, h_kv, j] * sm_scale) v[b, h_kv, j].

    Dtypes: float32, float16 or bfloat16, any strides. 16-bit inputs are widened: everything is computed in float32,
    with the row's maximum subtracted before the exponential, and the output is rounded once. H is a multiple of H_kv:
    query head h reads key head h_kv = h // (H // H_kv). `sm_scale` defaults to 1 / sqrt(D). With `causal` query i sees
    the keys j <= i + S_k - S_q, with `window` only that many up to its own; a query that sees none gives zeros, one
    whose keys all score minus infinity gives NaN.
    NaN and infinities of hidden keys and values do not reach the result. float8_e4m3fn: q, k and v are each multiplied
    by a scale, and the output is bfloat16.

    Raises ValueError for other shapes and dtypes.
    """
    check_attention(q, k, v, (scale_q, scale_k, scale_v), float64=True)
    B, H, S_q, D = q.shape
    H_kv, S_k = k.shape[1], k.shape[2]
    window = check_window("attention", window, causal, S_k)
    o = np.zeros(q.shape, ml_dtypes.bfloat16 if q.dtype == ml_dtypes.float8_e4m3fn else q.dtype)
    if o.size == 0 or S_k == 0:
        return o
    wide = np.dtype(working(q))
    scale = wide.type(1.0 / math.sqrt(D) if sm_scale is None else sm_scale)
    if scale_q is not None and scale_k is not None:
        scale = scale * scale_q * scale_k
    for b, h in np.ndindex(B, H):
        keys, values = (x[b, h // (H // H_kv)].astype(wide) for x in (k, v))
        if scale_v is not None:
            values *= scale_v
        for start in range(max(0, S_q - S_k) if causal else 0, S_q, BLOCK_M):
            rows = slice(start, min(start + BLOCK_M, S_q))
            near, seen = visible(rows, S_k, S_k - S_q, causal, window)
            s = (q[b, h, rows].astype(wide) @ keys[near].T) * scale  # [BLOCK_M, keys]
            s[~seen] = -np.inf
            p = np.exp(s - s.max(axis=1, keepdims=True))  # [BLOCK_M, keys]
            o[b, h, rows] = _weighted_sum(p, values[near], seen) / p.sum(axis=1, keepdims=True)
    return o


def _weighted_sum(p: np.ndarray, values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """p @ values. Computes row by row if a hidden value is not finite, because 0 times such a value is NaN."""
    if seen.all() or np.isfinite(values).all():
        return p @ values
    return np.stack([row[keys] @ values[keys] for row, keys in zip(p, seen, strict=True)])
