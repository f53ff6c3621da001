"""Attention in Triton with two passes over the keys: the row maxima, then the exponentials and their product with V.

Simpler than the plain kernel: each maximum is known before the first exponential, so no sum is rescaled, but every
score is computed twice.
"""

import triton
import triton.language as tl

from triton_kernels._runtime.arguments import check_head, check_positions
from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import CONFIGS, HEAD_DIMS, KEY, Keys, Queries
from triton_kernels.attention._configs import TILE, short_list
from triton_kernels.attention._masks import is_seen, key_range, last_keys
from triton_kernels.attention._rows import LOG2_E, LOWEST, attend_key_by_key, has_nan, load_rows, own_tile

DETERMINISTIC = True


@triton.jit
def visible_scores(q, k_ptr, keys, last_key, S_k, qk_scale, stride_kn, stride_kd, D: tl.constexpr):
    """Scores [queries, keys] in base 2; minus infinity for hidden keys."""
    k = load_rows(k_ptr, keys, S_k, stride_kn, stride_kd, D)
    scores = tl.dot(q, k.T, input_precision="ieee") * qk_scale
    return tl.where(is_seen(keys[None, :], last_key[:, None], 0), scores, float("-inf"))


@triton.jit
def two_passes_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, H, G, S_q, S_k, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M queries of one head. G query heads read the same key head."""
    head, start_m = own_tile(S_q, BLOCK_M)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    q = load_rows(q_ptr + b * stride_qb + h * stride_qh, rows, S_q, stride_qm, stride_qd, D)  # [BLOCK_M, D]
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh
    last_key = last_keys(rows, S_q, S_k, CAUSAL)
    first, end = key_range(start_m, S_q, S_k, CAUSAL, 0, BLOCK_M, BLOCK_N)
    largest = tl.full((BLOCK_M,), LOWEST, tl.float32)
    for start_n in range(first, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        scores = visible_scores(q, k_ptr, keys, last_key, S_k, qk_scale, stride_kn, stride_kd, D)
        largest = tl.maximum(largest, tl.max(scores, 1))
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start_n in range(first, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        scores = visible_scores(q, k_ptr, keys, last_key, S_k, qk_scale, stride_kn, stride_kd, D)
        p = tl.exp2(scores - largest[:, None])
        total += tl.sum(p, 1)
        v = load_rows(v_ptr, keys, S_k, stride_vn, stride_vd, D)  # [BLOCK_N, D]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    if CAUSAL and has_nan(acc):  # a hidden value may be the cause
        acc, total = attend_key_by_key(
            q, k_ptr, v_ptr, first, end, last_key, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd, 0
        )
    out = acc / tl.where(last_key < 0, 1.0, total)[:, None]  # a query that sees no key gives 0
    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + rows[:, None].to(tl.int64) * stride_om
    tl.store(out_ptrs + tl.arange(0, D)[None, :], out, mask=rows[:, None] < S_q)


if not INTERPRET:
    two_passes_kernel = autotune(CONFIGS, [name for name in KEY if name != "WINDOW"], short_list)(two_passes_kernel)


@kept
def attention(q: Queries, k: Keys, v: Keys, *, causal: bool = False, sm_scale: float | None = None) -> Queries:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes, dtypes, masks, tail and errors: those of the plain kernel.
    Source: the safe softmax, before its online form (Milakov and Gimelshein, 2018).
    """
    check_attention(q, k, v)
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    check_head(D, HEAD_DIMS, sm_scale)
    check_positions("attention", S_q, S_k)
    out = empty_output(q.shape, q.dtype, q.device)
    qk_scale = (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E
    if q.numel() > 0:
        with device_of(q):
            launch(
                two_passes_kernel, lambda tile: (B * H * triton.cdiv(S_q, tile["BLOCK_M"]),),
                q, k, v, out, H, H // H_kv, S_q, S_k, qk_scale,
                *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3], CAUSAL=causal, D=D, **TILE,
            )  # fmt: skip
    return finished_output(out, q.dtype)
