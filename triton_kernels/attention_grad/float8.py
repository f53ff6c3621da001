"""The gradients of attention in Triton of float8 tensors with a scale per operand. Float8 tensor cores compute all
products.

Adds to the plain kernels: p and ds scaled to the range of float8, and q, k and do also transposed in memory, since
float8 tensor cores need both operands contiguous along the sum.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.codes import check_float8
from triton_kernels._runtime.arguments import check_head, check_positions
from triton_kernels._runtime.contract import check_attention_grad
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import Keys, Queries
from triton_kernels.attention._masks import is_seen, last_keys
from triton_kernels.attention._rows import LOWEST, load_scale
from triton_kernels.attention.float8 import LOG2_E, transpose_kernel

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
HEAD_DIMS = (32, 64, 128)
FILLED = tl.constexpr(256.0)  # what the largest p and ds become before they are rounded; float8 reaches 448
LEAST = tl.constexpr(2.0**-100)  # the smallest number that a factor is divided by: ds of a row may be 0
BLOCK, STEP = 128, 64
"""Rows of a result that a program computes, and queries or keys that it adds at a time."""

Scale = Float[Tensor, ""]


@triton.jit
def load_tile(x_ptr, rows, columns, count, stride_row, COLUMNS: tl.constexpr):
    """A tile [rows, columns] of a matrix; zeros from row `count` on, or with COLUMNS from column `count` on."""
    inside = columns[None, :] < count if COLUMNS else rows[:, None] < count
    return dot_operand(tl.load(x_ptr + rows[:, None].to(tl.int64) * stride_row + columns[None, :], inside, other=0.0))


@triton.jit
def float8_statistics_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, scale_q_ptr, scale_k_ptr, lse_ptr, delta_ptr, limit_ptr, H, G, S_q, S_k, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The forward pass: one program computes three numbers for each of BLOCK_M queries of one head.

    lse: as in the plain kernel. delta: the row's sum of p dp, without the scales of do and v. limit: no |ds| of the row
    is larger.
    """
    tiles = tl.cdiv(S_q, BLOCK_M)
    start_m = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M  # the last queries see most keys when causal
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    q = load_tile(q_ptr + b * stride_qb + h * stride_qh, rows, offs_d, S_q, stride_qm, False)
    do = load_tile(do_ptr + b * stride_ob + h * stride_oh, rows, offs_d, S_q, stride_om, False)
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh
    qk_scale = sm_scale * LOG2_E * load_scale(scale_q_ptr) * load_scale(scale_k_ptr)
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    weighted = tl.zeros((BLOCK_M,), tl.float32)  # sum of exp2(score - m_i) dp
    largest = tl.zeros((BLOCK_M,), tl.float32)  # largest exp2(score - m_i) |dp|
    end = tl.minimum(start_m + BLOCK_M + (S_k - S_q), S_k) if CAUSAL else S_k
    for start_n in range(0, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_tile(k_ptr, keys, offs_d, S_k, stride_kn, False)
        v = load_tile(v_ptr, keys, offs_d, S_k, stride_vn, False)
        scores = tl.dot(q, k.T) * qk_scale  # [BLOCK_M, BLOCK_N]
        if MASKED:
            seen = is_seen(keys[None, :], last_keys(rows, S_q, S_k, CAUSAL)[:, None], 0)
            scores = tl.where(seen, scores, float("-inf"))
        dp = tl.dot(do, v.T)
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        weighted = weighted * alpha + tl.sum(p * dp, 1)
        largest = tl.maximum(largest * alpha, tl.max(p * tl.abs(dp), 1))
        m_i = m_new
    blind = rows + (S_k - S_q) < 0 if CAUSAL else rows < 0
    l_i = tl.where(blind, 1.0, l_i)
    delta = weighted / l_i
    at, inside = head * S_q + rows, rows < S_q
    tl.store(lse_ptr + at, tl.where(blind, float("inf"), m_i + tl.log2(l_i)), mask=inside)
    tl.store(delta_ptr + at, delta, mask=inside)
    tl.store(limit_ptr + at, (largest + tl.abs(delta)) / l_i, mask=inside)  # the largest p is 1 / l_i


@triton.jit
def float8_dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, qt_ptr, dot_ptr, scale_q_ptr, scale_k_ptr, scale_v_ptr, scale_do_ptr,
    lse_ptr, delta_ptr, limit_ptr, dk_ptr, dv_ptr, H_kv, G, S_q, S_k, pitch, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dk and dv of one key head, from all queries of its G query heads.

    qt, dot: q and do transposed, (B, H, D, S_q) with rows `pitch` apart. ds has one factor in each tile, so that tiles
    are added in float32.
    """
    tiles = tl.cdiv(S_k, BLOCK_N)
    start_n = tl.program_id(0) % tiles * BLOCK_N
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h_kv = head // H_kv, head % H_kv
    keys = start_n + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    k = load_tile(k_ptr + b * stride_kb + h_kv * stride_kh, keys, offs_d, S_k, stride_kn, False)
    v = load_tile(v_ptr + b * stride_vb + h_kv * stride_vh, keys, offs_d, S_k, stride_vn, False)
    qk_scale = sm_scale * LOG2_E * load_scale(scale_q_ptr) * load_scale(scale_k_ptr)
    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    first = tl.maximum(start_n - (S_k - S_q), 0) // BLOCK_M * BLOCK_M if CAUSAL else 0
    for g in range(0, G):
        h = h_kv * G + g
        query_head = b * H_kv * G + h
        for start_m in range(first, S_q, BLOCK_M):
            rows = start_m + tl.arange(0, BLOCK_M)
            at, inside = query_head * S_q + rows, rows < S_q
            lse = tl.load(lse_ptr + at, mask=inside, other=float("inf"))
            delta = tl.load(delta_ptr + at, mask=inside, other=0.0)
            limit = tl.maximum(tl.max(tl.load(limit_ptr + at, mask=inside, other=0.0), 0), LEAST)
            q = load_tile(q_ptr + b * stride_qb + h * stride_qh, rows, offs_d, S_q, stride_qm, False)
            p = tl.exp2(tl.dot(k, q.T) * qk_scale - lse[None, :])  # [BLOCK_N, BLOCK_M]
            if MASKED:
                seen = is_seen(keys[:, None], last_keys(rows, S_q, S_k, CAUSAL)[None, :], 0) & inside[None, :]
                p = tl.where(seen, p, 0.0)
            do = load_tile(do_ptr + b * stride_ob + h * stride_oh, rows, offs_d, S_q, stride_om, False)
            ds = p * (tl.dot(v, do.T) - delta[None, :])
            do_t = load_tile(dot_ptr + query_head * D * pitch, offs_d, rows, S_q, pitch, True)  # [D, BLOCK_M]
            dv = tl.dot((p * FILLED).to(do_t.dtype), do_t.T, dv)
            factor = 1.0 / limit * FILLED
            q_t = load_tile(qt_ptr + query_head * D * pitch, offs_d, rows, S_q, pitch, True)
            dk += tl.dot((ds * factor).to(q_t.dtype), q_t.T) * (limit / FILLED)
    at = (head * S_k + keys[:, None]) * D + offs_d[None, :]
    scale_do = tl.load(scale_do_ptr)
    dk *= sm_scale * tl.load(scale_q_ptr) * tl.load(scale_v_ptr) * scale_do
    tl.store(dk_ptr + at, dk, mask=keys[:, None] < S_k)
    tl.store(dv_ptr + at, dv * (scale_do / FILLED), mask=keys[:, None] < S_k)


@triton.jit
def float8_dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, kt_ptr, scale_q_ptr, scale_k_ptr, scale_v_ptr, scale_do_ptr,
    lse_ptr, delta_ptr, limit_ptr, dq_ptr, H, G, S_q, S_k, pitch, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of dq of one head, from all keys. kt: k transposed, as in dk_dv_kernel.

    ds has one factor in each row.
    """
    tiles = tl.cdiv(S_q, BLOCK_M)
    start_m = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M
    head = (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    rows = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    q = load_tile(q_ptr + b * stride_qb + h * stride_qh, rows, offs_d, S_q, stride_qm, False)
    do = load_tile(do_ptr + b * stride_ob + h * stride_oh, rows, offs_d, S_q, stride_om, False)
    at, inside = head * S_q + rows, rows < S_q
    lse = tl.load(lse_ptr + at, mask=inside, other=float("inf"))
    delta = tl.load(delta_ptr + at, mask=inside, other=0.0)
    limit = tl.maximum(tl.load(limit_ptr + at, mask=inside, other=0.0), LEAST)
    factor = 1.0 / limit * FILLED
    k_ptr += b * stride_kb + h // G * stride_kh
    v_ptr += b * stride_vb + h // G * stride_vh
    kt_ptr += (b * (H // G) + h // G) * D * pitch
    qk_scale = sm_scale * LOG2_E * load_scale(scale_q_ptr) * load_scale(scale_k_ptr)
    dq = tl.zeros((BLOCK_M, D), tl.float32)
    end = tl.minimum(start_m + BLOCK_M + (S_k - S_q), S_k) if CAUSAL else S_k
    for start_n in range(0, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N)
        k = load_tile(k_ptr, keys, offs_d, S_k, stride_kn, False)
        v = load_tile(v_ptr, keys, offs_d, S_k, stride_vn, False)
        p = tl.exp2(tl.dot(q, k.T) * qk_scale - lse[:, None])  # [BLOCK_M, BLOCK_N]
        if MASKED:
            p = tl.where(is_seen(keys[None, :], last_keys(rows, S_q, S_k, CAUSAL)[:, None], 0), p, 0.0)
        ds = p * (tl.dot(do, v.T) - delta[:, None])
        k_t = load_tile(kt_ptr, offs_d, keys, S_k, pitch, True)  # [D, BLOCK_N]
        dq = tl.dot((ds * factor[:, None]).to(k_t.dtype), k_t.T, dq)
    dq *= (limit / FILLED)[:, None]
    dq *= sm_scale * tl.load(scale_k_ptr) * tl.load(scale_v_ptr) * tl.load(scale_do_ptr)
    tl.store(dq_ptr + (head * S_q + rows[:, None]) * D + offs_d[None, :], dq, mask=rows[:, None] < S_q)


@kept
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
) -> tuple[Queries, Keys, Keys]:
    """(dq, dk, dv): gradients of the sum of do * o for the scaled operands, where o = softmax(sm_scale q k^T) v.

    Shapes: q and do (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides (operands without contiguous rows are
    copied); D is 32, 64 or 128. The scales: float32, of shape (). The results are contiguous. `causal` and `sm_scale`
    are those of `attention`.
    Dtypes: q, k, v and do float8_e4m3fn, the results bfloat16. Softmax and its sums in float32; p and ds are multiplied
    by factors and rounded to float8. That of ds follows from a limit of each row of |ds|, which the forward pass finds.
    Hopper's tensor cores keep 14 bits of sums of float8 products.
    Memory: q, k and do transposed; three float32 numbers for each query.
    A query that sees no key has gradient 0. Hidden pairs are weighted by 0: NaN of hidden rows can reach the gradients
    of rows of the same tile.
    Tail: loads beyond the last row give 0, and pairs beyond it have the weight 0.
    Errors: ValueError for other shapes, dtypes, scales or devices; NotImplementedError for float32, float16 and
    bfloat16, other D, a negative sm_scale, S_q or S_k above 2^30, or before compute capability 8.9.
    Source: the plain kernels, with the float8 products of FlashAttention-3 (Shah et al., 2024).
    """
    scales = scale_q, scale_k, scale_v, scale_do
    B, H, H_kv, S_q, S_k, D = check_attention_grad(q, k, v, do, scales)
    if q.dtype != torch.float8_e4m3fn:
        raise NotImplementedError(f"attention_grad: needs float8_e4m3fn; got {q.dtype}")
    check_float8("attention_grad", q)
    check_head(D, HEAD_DIMS, sm_scale, "attention_grad")
    check_positions("attention_grad", S_q, S_k)
    if q.numel() == 0 or k.numel() == 0:
        dq, dk, dv = (torch.zeros(x.shape, dtype=torch.bfloat16, device=x.device) for x in (q, k, v))
        return dq, dk, dv
    dq, dk, dv = (empty_output(x.shape, torch.bfloat16, x.device) for x in (q, k, v))
    lse, delta, limit = (torch.empty((B, H, S_q), dtype=torch.float32, device=q.device) for _ in range(3))
    sm_scale, G = D**-0.5 if sm_scale is None else sm_scale, H // H_kv
    options = {} if INTERPRET else {"num_warps": 8, "num_stages": 2}
    masked = causal or S_q % BLOCK != 0 or S_k % BLOCK != 0
    by_query = dict(CAUSAL=causal, MASKED=masked, D=D, BLOCK_M=BLOCK, BLOCK_N=STEP, **options)
    by_key = by_query | {"BLOCK_M": STEP, "BLOCK_N": BLOCK}
    with device_of(q):
        q, k, v, do = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v, do))
        strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3]
        q_t, k_t, do_t = (transposed(x) for x in (q, k, do))
        queries, keys = (B * H * triton.cdiv(S_q, BLOCK),), (B * H_kv * triton.cdiv(S_k, BLOCK),)
        launch(
            float8_statistics_kernel, queries,
            q, k, v, do, scale_q, scale_k, lse, delta, limit, H, G, S_q, S_k, sm_scale, *strides, **by_query,
        )  # fmt: skip
        launch(
            float8_dk_dv_kernel, keys,
            q, k, v, do, q_t, do_t, *scales, lse, delta, limit, dk, dv, H_kv, G, S_q, S_k, q_t.stride(2), sm_scale,
            *strides, **by_key,
        )  # fmt: skip
        launch(
            float8_dq_kernel, queries,
            q, k, v, do, k_t, *scales, lse, delta, limit, dq, H, G, S_q, S_k, k_t.stride(2), sm_scale,
            *strides, **by_query,
        )  # fmt: skip
    dtype = torch.bfloat16
    return finished_output(dq, dtype), finished_output(dk, dtype), finished_output(dv, dtype)


def transposed(x: Tensor) -> Tensor:
    """x (B, H, S, D) as (B, H, D, S), with rows at multiples of 16 bytes."""
    B, H, S, D = x.shape
    pitch = triton.cdiv(S, 16) * 16
    out = torch.empty((B, H, D, pitch), dtype=x.dtype, device=x.device)
    launch(
        transpose_kernel, (B * H * triton.cdiv(S, 128),), x, out, H, S, pitch, *x.stride(),
        D=D, BLOCK_N=128, num_warps=4,
    )  # fmt: skip
    return out


def config(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, *scales: Tensor, causal: bool = False, sm_scale: float | None = None
) -> str:
    """The kernels that `attention_grad` runs; empty if there is nothing to compute."""
    if q.numel() == 0 or k.numel() == 0:
        return ""
    return f"transpose; float8_statistics {BLOCK}x{STEP}; float8_dk_dv {STEP}x{BLOCK}; float8_dq {BLOCK}x{STEP}"
