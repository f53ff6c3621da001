"""Attention in Triton of float8 tensors with a scale per operand. Float8 tensor cores compute both products.

Adds to `triton/packed`: weights scaled to the range of float8, and V transposed in memory, since float8 tensor cores
need both operands contiguous along the sum.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._common.tma import describe, tma_rows
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention._rows import LOWEST
from triton_kernels.attention._softmax import (
    check_limits,
    head_group,
    recompute_by_key,
    row_pointers,
    store_tile,
    tile_of,
    visible_keys,
)

DETERMINISTIC = True
DTYPES_BEYOND = ("float8_e4m3fn",)
LOG2_E = tl.constexpr(1.4426950408889634)
LARGEST_WEIGHT = tl.constexpr(8.0)  # base-2 logarithm; float8 weights range from 2^8 down to 2^-9
TILES = {  # by D: rows, keys, warps, stages of a tile
    **dict.fromkeys((16, 32, 64, 128), (64, 128, 4, 3)),
    256: (128, 64, 8, 3),
}


@triton.jit
def transpose_kernel(
    v_ptr, out_ptr, H_kv, S_k, pitch, stride_b, stride_h, stride_n, stride_d, D: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Transposes v (B, H_kv, S_k, D) to out (B, H_kv, D, S_k), rows `pitch` apart. One program copies BLOCK_N keys."""
    blocks = tl.cdiv(S_k, BLOCK_N)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    keys = tl.program_id(0) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    v_ptr += head // H_kv * stride_b + head % H_kv * stride_h
    offs = keys[:, None].to(tl.int64) * stride_n + offs_d[None, :].to(tl.int64) * stride_d
    v = tl.load(v_ptr + offs, mask=keys[:, None] < S_k, other=0.0)
    tl.store(out_ptr + (head * D + offs_d[:, None]) * pitch + keys[None, :], v.T, mask=keys[None, :] < S_k)


@triton.jit
def add_keys(
    acc, l_i, m_i, q, k_desc, v_desc, head, start, end, last_key, qk_scale,
    MASKED: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """`online_softmax_tma` in float8, with weights up to 2^LARGEST_WEIGHT: m_i is LARGEST_WEIGHT below the maximum."""
    b, h_kv = head
    for start_n in range(start, end, BLOCK_N):
        k = dot_operand(k_desc.load([b, h_kv, start_n, 0]).reshape(BLOCK_N, D))
        qk = tl.dot(q, k.T)  # [BLOCK_M, BLOCK_N]
        if MASKED:
            keys = start_n + tl.arange(0, BLOCK_N)
            qk = tl.where(keys[None, :] <= last_key[:, None], qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1) * qk_scale - LARGEST_WEIGHT)
        p = tl.exp2(tl.fma(qk, qk_scale, -m_new[:, None]))
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = dot_operand(v_desc.load([b, h_kv, 0, start_n]).reshape(D, BLOCK_N))
        acc = tl.dot(p.to(v.dtype), v.T, acc * alpha[:, None])  # [BLOCK_M, D]
        m_i = m_new
    return acc, l_i, m_i


@triton.jit(do_not_specialize=["S_k"])
def float8_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale_q_ptr, scale_k_ptr, scale_v_ptr, k_desc, v_desc,
    HEADS, H_kv, S_q, S_k, HEAD_GROUP, sm_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of the output for one batch entry and key head, as `packed_kernel` does.

    v_desc: descriptor of V transposed.
    """
    head, start_m = tile_of(S_q * G, HEADS, HEAD_GROUP, BLOCK_M)
    b = (head // H_kv).to(tl.int64)
    h_kv = (head % H_kv).to(tl.int64)
    rows = start_m + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    q_ptrs = row_pointers(q_ptr + b * stride_qb, rows, h_kv, stride_qh, stride_qm, G)
    q_ptrs += offs_d[None, :].to(tl.int64) * stride_qd
    q = tl.load(q_ptrs, mask=rows[:, None] < S_q * G, other=0.0)  # [BLOCK_M, D]
    scale = tl.load(scale_q_ptr) * tl.load(scale_k_ptr) * sm_scale * LOG2_E
    scale_v = tl.load(scale_v_ptr)
    # The largest score is the scale times the largest product, so the scale must not be negative.
    q = dot_operand((q.to(tl.float32) * tl.where(scale < 0.0, -1.0, 1.0)).to(q.dtype))
    qk_scale = tl.abs(scale)

    last_key, full, end = visible_keys(start_m, S_q, S_k, CAUSAL, G, BLOCK_M, BLOCK_N)
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    at = b.to(tl.int32), h_kv.to(tl.int32)
    acc, l_i, m_i = add_keys(acc, l_i, m_i, q, k_desc, v_desc, at, 0, full, last_key, qk_scale, False, D, BLOCK_N)
    acc, l_i, m_i = add_keys(acc, l_i, m_i, q, k_desc, v_desc, at, full, end, last_key, qk_scale, True, D, BLOCK_N)
    out_ptr += b * stride_ob
    out_ptrs = row_pointers(out_ptr, rows, h_kv, stride_oh, stride_om, G) + offs_d[None, :]
    if store_tile(out_ptrs, acc, l_i, last_key, rows, S_q * G, scale_v, CAUSAL):
        recompute_by_key(
            q_ptr + b * stride_qb, k_ptr + b * stride_kb + h_kv * stride_kh, v_ptr + b * stride_vb + h_kv * stride_vh,
            out_ptr, start_m, h_kv, S_q, S_k, S_k - S_q, scale, scale_v, stride_qh, stride_qm,
            stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om, G, D, BLOCK_M,
        )  # fmt: skip


@kept
def attention(
    q: Float[Tensor, "B H S_q D"],
    k: Float[Tensor, "B H_kv S_k D"],
    v: Float[Tensor, "B H_kv S_k D"],
    scale_q: Float[Tensor, ""] | None = None,
    scale_k: Float[Tensor, ""] | None = None,
    scale_v: Float[Tensor, ""] | None = None,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
) -> Float[Tensor, "B H S_q D"]:
    """out = softmax(sm_scale scale_q q (scale_k k)^T) scale_v v, for each batch entry and head.

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; query head h reads key head h // (H // H_kv). D is
    a power of two from 16 to 256. scale_q, scale_k and scale_v: float32, of shape (). The output is contiguous.
    `sm_scale` defaults to 1 / sqrt(D).
    Causal: query i sees keys up to i + S_k - S_q; a query that sees no key gives zeros. NaN of hidden keys and values
    does not reach the result: a tile with a NaN is computed again, far more slowly.
    Dtypes: q, k and v float8_e4m3fn, the output bfloat16. Scores, softmax and accumulation in float32; the
    probabilities are rounded to float8 for the second product.
    Memory: V is transposed first; keys that TMA cannot read are copied.
    Errors: ValueError for other shapes, dtypes, scales or devices; NotImplementedError for float32, float16 and
    bfloat16, other D, a negative sm_scale, or strides of k and v along S_k or D of 2**22 or more.
    Source: FlashAttention-2 (Dao, 2023) with the float8 products of FlashAttention-3 (Shah et al., 2024).
    """
    scales = scale_q, scale_k, scale_v
    check_attention(q, k, v, scales)
    check_limits(q, k, v, sm_scale)
    if q.dtype != torch.float8_e4m3fn:
        raise NotImplementedError(f"attention: needs float8_e4m3fn; got {q.dtype}")
    out = empty_output(q.shape, torch.bfloat16, q.device)
    attend(q, k, v, scales, out, causal, sm_scale)
    return finished_output(out, torch.bfloat16)


def config(
    q: Tensor, k: Tensor, v: Tensor, *scales: Tensor, causal: bool = False, sm_scale: float | None = None
) -> str:
    """The kernels that `attention` runs; empty if there is nothing to compute."""
    if q.numel() == 0 or k.shape[2] == 0:
        return ""
    BLOCK_M, BLOCK_N, *_ = TILES[q.shape[3]]
    return f"transpose; float8 {BLOCK_M}x{BLOCK_N}"


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scales: tuple[Tensor | None, ...],
    out: Tensor,
    causal: bool,
    sm_scale: float | None,
) -> None:
    """Writes the result of `attention` to `out` (B, H, S_q, D), contiguous."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    if q.numel() == 0 or S_k == 0:
        out.zero_()
        return
    G, HEADS = H // H_kv, B * H_kv
    pitch = triton.cdiv(S_k, 16) * 16
    BLOCK_M, BLOCK_N, num_warps, num_stages = TILES[D]
    options = {} if INTERPRET else {"num_warps": num_warps, "num_stages": num_stages}
    with device_of(q):
        keys = tma_rows(k)
        columns = torch.empty((B, H_kv, D, pitch), dtype=v.dtype, device=v.device)[..., :S_k]
        launch(
            transpose_kernel, (HEADS * triton.cdiv(S_k, 128),), v, columns, H_kv, S_k, pitch, *v.stride(),
            D=D, BLOCK_N=128, num_warps=4,
        )  # fmt: skip
        launch(
            float8_kernel, (HEADS * triton.cdiv(S_q * G, BLOCK_M),),
            q, k, v, out, *scales, describe(keys, BLOCK_N), describe(columns, D, BLOCK_N),
            HEADS, H_kv, S_q, S_k, head_group(HEADS, 2 * S_k * D), D**-0.5 if sm_scale is None else sm_scale,
            *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3],
            CAUSAL=causal, G=G, D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, **options,
        )  # fmt: skip
