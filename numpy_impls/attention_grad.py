"""The gradients of attention, one head and one block of queries at a time."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_attention_grad, check_window, working
from numpy_impls._runtime.masks import visible

DTYPES_BEYOND = ("float8_e4m3fn", "float64")
OPTIONS_BEYOND = ("window",)

BLOCK_M = 128
"""Queries per step: the probabilities in memory are (BLOCK_M, S_k), never (S_q, S_k)."""

Queries = Float[np.ndarray, "B H S_q D"]
Keys = Float[np.ndarray, "B H_kv S_k D"]
Scale = Float[np.ndarray, ""]


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def attention_grad(
    q: Queries,
    k: Keys,
    v: Keys,
    do: Queries,
    scale_q: Scale | None = None,
    scale_k: Scale | None = None,
    scale_v: Scale | None = None,
    scale_do: Scale | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o, where o is the `attention` of q, k and v.

    With p = softmax(q k^T * sm_scale), ds = p * (do v^T - the row's sum of p * (do v^T)):
    dq = sm_scale ds k, dk = sm_scale ds^T q, dv = p^T do; dk and dv are sums over the query heads of a key head.

    float32, float16 or bfloat16, any strides. Everything is computed in float32 and rounded once. Grouped heads,
    `causal`, `sm_scale` and `window` are those of `attention`; a query that sees no key has gradient 0. float8_e4m3fn:
    q, k, v and do are each multiplied by a scale, and the gradients of the scaled operands are bfloat16.

    Raises ValueError for other shapes and dtypes.
    """
    scales = scale_q, scale_k, scale_v, scale_do
    check_attention_grad(q, k, v, do, scales, float64=True)
    B, H, S_q, D = q.shape
    H_kv, S_k = k.shape[1], k.shape[2]
    window = check_window("attention_grad", window, causal, S_k)
    wide = np.dtype(working(q))
    dq = np.zeros(q.shape, wide)
    dk, dv = (np.zeros(k.shape, wide) for _ in range(2))
    result = ml_dtypes.bfloat16 if q.dtype == ml_dtypes.float8_e4m3fn else q.dtype
    if S_k == 0:
        return dq.astype(result), dk.astype(result), dv.astype(result)
    scale_q, scale_k, scale_v, scale_do = (wide.type(1.0) if each is None else each for each in scales)
    scale = wide.type(1.0 / math.sqrt(max(D, 1)) if sm_scale is None else sm_scale)
    for b, h in np.ndindex(B, H):
        h_kv = h // (H // H_kv)
        keys, values = k[b, h_kv].astype(wide) * scale_k, v[b, h_kv].astype(wide) * scale_v
        for start in range(max(0, S_q - S_k) if causal else 0, S_q, BLOCK_M):
            rows = slice(start, min(start + BLOCK_M, S_q))
            near, seen = visible(rows, S_k, S_k - S_q, causal, window)
            queries, given = q[b, h, rows].astype(wide) * scale_q, do[b, h, rows].astype(wide) * scale_do
            s = (queries @ keys[near].T) * scale  # [BLOCK_M, keys]
            s[~seen] = -np.inf
            p = np.exp(s - s.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            dp = given @ values[near].T
            ds = p * (dp - (p * dp).sum(axis=1, keepdims=True))
            dq[b, h, rows] = (ds @ keys[near]) * scale
            dk[b, h_kv, near] += (ds.T @ queries) * scale
            dv[b, h_kv, near] += p.T @ given
    return dq.astype(result), dk.astype(result), dv.astype(result)
