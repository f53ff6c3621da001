"""Attention in Triton with two passes over the keys: the row maxima, then the exponentials and their product with V.

Simpler than the plain kernel: each maximum is known before the first exponential, so no sum is rescaled, but every
score is computed twice.
"""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.autotuner import autotune
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import (
    CONFIGS,
    LOG2_E,
    LOWEST,
    TILE,
    attend_key_by_key,
    check_limits,
    has_nan,
    short_list,
)

DETERMINISTIC = True


@triton.jit
def visible_scores(q, k_row, start_n, last_key, S_k, qk_scale, stride_kn, BLOCK_N: tl.constexpr):
    """Scores [BLOCK_M, BLOCK_N] of the keys from start_n on, in base 2; minus infinity for hidden keys."""
    keys = start_n + tl.arange(0, BLOCK_N)
    k = tl.load(k_row[None, :] + keys[:, None].to(tl.int64) * stride_kn, mask=keys[:, None] < S_k, other=0.0)
    scores = tl.dot(q, dot_operand(k).T, input_precision="ieee") * qk_scale
    return tl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))


@triton.jit
def two_passes_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, H, G, S_q, S_k, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M queries of one head. G query heads read the same key head."""
    tiles = tl.cdiv(S_q, BLOCK_M)
    start_m = tl.program_id(0) % tiles * BLOCK_M
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D).to(tl.int64)
    rows = offs_m[:, None].to(tl.int64)
    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + rows * stride_qm + offs_d[None, :] * stride_qd
    q = dot_operand(tl.load(q_ptrs, mask=rows < S_q, other=0.0))  # [BLOCK_M, D]
    k_row = k_ptr + b * stride_kb + h // G * stride_kh + offs_d * stride_kd  # key 0
    v_row = v_ptr + b * stride_vb + h // G * stride_vh + offs_d * stride_vd

    last_key = tl.full((BLOCK_M,), S_k - 1, tl.int32)  # last key that each query sees
    end = S_k
    if CAUSAL:
        last_key = tl.minimum(offs_m + (S_k - S_q), S_k - 1)
        end = tl.minimum(start_m + BLOCK_M + (S_k - S_q), S_k)
    largest = tl.full((BLOCK_M,), LOWEST, tl.float32)
    for start_n in range(0, end, BLOCK_N):
        scores = visible_scores(q, k_row, start_n, last_key, S_k, qk_scale, stride_kn, BLOCK_N)
        largest = tl.maximum(largest, tl.max(scores, 1))
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start_n in range(0, end, BLOCK_N):
        scores = visible_scores(q, k_row, start_n, last_key, S_k, qk_scale, stride_kn, BLOCK_N)
        p = tl.exp2(scores - largest[:, None])
        total += tl.sum(p, 1)
        keys = start_n + tl.arange(0, BLOCK_N)[:, None]
        v = tl.load(v_row[None, :] + keys.to(tl.int64) * stride_vn, mask=keys < S_k, other=0.0)
        v = dot_operand(v)  # [BLOCK_N, D]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    if CAUSAL and has_nan(acc):
        acc, total = attend_key_by_key(q, k_row, v_row, 0, end, last_key, qk_scale, stride_kn, stride_vn, 0)
    out = acc / tl.where(last_key < 0, 1.0, total)[:, None]  # a query that sees no key gives 0
    out_ptrs = out_ptr + b * stride_ob + h * stride_oh + rows * stride_om + offs_d[None, :]
    tl.store(out_ptrs, out, mask=rows < S_q)


if not INTERPRET:
    two_passes_kernel = autotune(CONFIGS, ["H", "G", "S_q", "S_k", "D", "CAUSAL"], short_list)(two_passes_kernel)


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale q k^T) v, for each batch entry and head.

    Shapes, dtypes, masks, tail and errors: those of the plain kernel.
    Source: the safe softmax, before its online form (Milakov and Gimelshein, 2018).
    """
    check_attention(q, k, v)
    check_limits(q, k, sm_scale)
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
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
