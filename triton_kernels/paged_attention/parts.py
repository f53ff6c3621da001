"""Attention over a cache in pages, in Triton: adds a division of the keys among programs (split-K) to the plain kernel.

A second kernel adds the parts. Codes of float8 become bfloat16 without the slow cast. One tile has all queries of a key
head.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

from triton_kernels._common.codes import check_float8
from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.caches import check_paged_attention
from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import HEAD_DIMS
from triton_kernels.attention._rows import LOG2_E, LOWEST, load_scale
from triton_kernels.attention.parts import BLOCK_BYTES, OPTIONS, PARTS_TOGETHER, parts_of

DETERMINISTIC = True
MOST_ROWS = 128
"""Most rows of a program: queries of all query heads of one key head."""


@triton.jit
def key_operand(ptrs, held, dtype: tl.constexpr):
    """Keys or values as an operand of a product with q. Numbers of float8 are exact in the type of q."""
    x = tl.load(ptrs, mask=held[:, None], other=0.0)
    if dtype == tl.bfloat16 and x.dtype == tl.float8e4nv and not INTERPRET:
        # The cast to bfloat16 rounds by an instruction of a quarter of the rate; cutting off the zeros does not.
        bits = x.to(tl.float16).to(tl.float32).to(tl.int32, bitcast=True)
        return (bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return dot_operand(x.to(dtype))


@triton.jit(do_not_specialize=["PART", "PARTS"])
def paged_parts_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, scale_k_ptr, scale_v_ptr, sums_ptr, statistics_ptr,
    H_kv, S_q, G, page, PART, PARTS, qk_scale,
    stride_qb, stride_qs, stride_qh, stride_qd, stride_kp, stride_ks, stride_kh, stride_kd,
    stride_vp, stride_vs, stride_vh, stride_vd, stride_tb, stride_tp, stride_l,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program adds PART keys of one sequence and key head, and stores acc, m_i and l_i.

    Row r is query r // G of query head r % G of that key head.
    """
    part = tl.program_id(0) % PARTS
    head = tl.program_id(0) // PARTS
    b = (head // H_kv).to(tl.int64)
    h_kv = (head % H_kv).to(tl.int64)
    length = tl.load(lengths_ptr + b * stride_l)
    rows = tl.arange(0, BLOCK_M)
    queries, heads = (rows // G).to(tl.int64), h_kv * G + rows % G
    inside = rows < S_q * G
    offs_d = tl.arange(0, D).to(tl.int64)
    q_ptrs = q_ptr + b * stride_qb + queries[:, None] * stride_qs + heads[:, None] * stride_qh
    q = dot_operand(tl.load(q_ptrs + offs_d[None, :] * stride_qd, mask=inside[:, None], other=0.0))  # [BLOCK_M, D]
    k_row = k_ptr + h_kv * stride_kh + offs_d * stride_kd
    v_row = v_ptr + h_kv * stride_vh + offs_d * stride_vd
    table_ptr += b * stride_tb
    last_key = queries + (length - S_q)  # the last key that each query sees
    qk_scale *= load_scale(scale_k_ptr)

    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(part * PART, tl.minimum(part * PART + PART, length), BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        held = keys < length
        at = tl.load(table_ptr + (keys // page).to(tl.int64) * stride_tp, mask=held, other=0).to(tl.int64)
        slots = (keys % page).to(tl.int64)
        k_ptrs = k_row[None, :] + (at * stride_kp + slots * stride_ks)[:, None]
        v_ptrs = v_row[None, :] + (at * stride_vp + slots * stride_vs)[:, None]
        k = key_operand(k_ptrs, held, q_ptr.dtype.element_ty)  # [BLOCK_N, D]
        v = key_operand(v_ptrs, held, q_ptr.dtype.element_ty)  # [BLOCK_N, D]
        scores = tl.dot(q, k.T, input_precision="ieee") * qk_scale  # [BLOCK_M, BLOCK_N]
        scores = tl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m_i = m_new
    acc *= load_scale(scale_v_ptr)
    at = ((b * S_q + queries) * (H_kv * G) + heads) * PARTS + part
    tl.store(sums_ptr + at[:, None] * D + offs_d[None, :], acc, mask=inside[:, None])
    tl.store(statistics_ptr + at * 2, m_i, mask=inside)
    tl.store(statistics_ptr + at * 2 + 1, l_i, mask=inside)


@triton.jit(do_not_specialize=["PARTS"])
def add_paged_parts_kernel(
    sums_ptr, statistics_ptr, lengths_ptr, out_ptr, S_q, H, PARTS, stride_l, D: tl.constexpr, BLOCK: tl.constexpr
):
    """One program adds the parts of one row, BLOCK at a time, in a fixed order, and divides by the sum of weights.

    The sums of a part are relative to its own maximum, so each is scaled by exp2(its maximum - the largest maximum).
    """
    row = tl.program_id(0).to(tl.int64)
    offs_d = tl.arange(0, D)
    m_i = tl.full((), LOWEST, tl.float32)
    l_i = tl.zeros((), tl.float32)
    acc = tl.zeros((D,), tl.float32)
    for start in range(0, PARTS, BLOCK):
        parts = start + tl.arange(0, BLOCK)
        there = parts < PARTS
        at = row * PARTS + parts
        m_part = tl.load(statistics_ptr + at * 2, mask=there, other=LOWEST)
        l_part = tl.load(statistics_ptr + at * 2 + 1, mask=there, other=0.0)
        sums = tl.load(sums_ptr + at[:, None] * D + offs_d[None, :], mask=there[:, None], other=0.0)  # [BLOCK, D]
        m_new = tl.maximum(m_i, tl.max(m_part, 0))
        alpha = tl.exp2(m_i - m_new)
        weight = tl.exp2(m_part - m_new)
        l_i = l_i * alpha + tl.sum(l_part * weight, 0)
        acc = acc * alpha + tl.sum(sums * weight[:, None], 0)
        m_i = m_new
    length = tl.load(lengths_ptr + row // (S_q * H) * stride_l)
    blind = row // H % S_q + (length - S_q) < 0
    tl.store(out_ptr + row * D + offs_d, acc / tl.where(blind, 1.0, l_i))


@kept
def paged_attention(
    q: Float[Tensor, "B S_q H D"],
    k_pages: Float[Tensor, "P page H_kv D"],
    v_pages: Float[Tensor, "P page H_kv D"],
    table: Int32[Tensor, "B pages"],
    lengths: Int32[Tensor, "B"],
    scale_k: Float[Tensor, ""] | None = None,
    scale_v: Float[Tensor, ""] | None = None,
    *,
    sm_scale: float | None = None,
) -> Float[Tensor, "B S_q H D"]:
    """o[b, i, h] = sum over j <= i + lengths[b] - S_q of softmax_j(sm_scale q[b, i, h] . k[b, j, h_kv]) v[b, j, h_kv].

    Contract, dtypes and tail: those of the plain kernel. Errors: those too, and NotImplementedError for more than 128
    queries of one key head (S_q H / H_kv).
    The number of parts follows from the length of the table, not from the lengths, which are on the device: programs of
    parts beyond a sequence's length store zeros.
    Memory: D + 2 float32 numbers for each row and part.
    Source: Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023).
    """
    B, S_q, H, H_kv, page, D = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    check_head(D, HEAD_DIMS, sm_scale, "paged_attention")
    if scale_k is not None:
        check_float8("paged_attention", q)
    if q.numel() > 0 and S_q * (H // H_kv) > MOST_ROWS:
        raise NotImplementedError(f"paged_attention: S_q * H / H_kv must be at most {MOST_ROWS}; got {q.shape}")
    out = empty_output(q.shape, q.dtype, q.device)
    if q.numel() == 0:
        return finished_output(out, q.dtype)
    BLOCK_N, parts, part = division(q, k_pages, table)
    with device_of(q):
        sums = torch.empty((B * S_q * H, parts, D), dtype=torch.float32, device=q.device)
        statistics = torch.empty((B * S_q * H, parts, 2), dtype=torch.float32, device=q.device)
        launch(
            paged_parts_kernel, (B * H_kv * parts,),
            q, k_pages, v_pages, table, lengths, scale_k, scale_v, sums, statistics,
            H_kv, S_q, H // H_kv, page, part, parts, (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E,
            *q.stride(), *k_pages.stride(), *v_pages.stride(), *table.stride(), *lengths.stride(),
            D=D, BLOCK_M=block_of(S_q * (H // H_kv)), BLOCK_N=BLOCK_N, **OPTIONS,
        )  # fmt: skip
        launch(
            add_paged_parts_kernel, (B * S_q * H,),
            sums, statistics, lengths, out, S_q, H, parts, lengths.stride(0), D=D, BLOCK=PARTS_TOGETHER, num_warps=4,
        )  # fmt: skip
    return finished_output(out, q.dtype)


def config(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale_k: Tensor | None = None,
    scale_v: Tensor | None = None,
    *,
    sm_scale: float | None = None,
) -> str:
    """The kernels that `paged_attention` runs, with the number of parts; empty if there is nothing to compute."""
    if q.numel() == 0:
        return ""
    BLOCK_N, parts, _ = division(q, k_pages, table)
    BLOCK_M = block_of(q.shape[1] * (q.shape[2] // k_pages.shape[2]))
    return f"paged_parts {BLOCK_M}x{BLOCK_N} count={parts}; add_paged_parts"


def block_of(rows: int) -> int:
    """Rows of a tile that holds all `rows`; tensor cores take 16 at least."""
    return max(16, triton.next_power_of_2(rows))


def division(q: Tensor, k_pages: Tensor, table: Tensor) -> tuple[int, int, int]:
    """Keys of a block, number of parts, and keys of a part. They depend on shapes, dtype and device."""
    slots, D = max(1, table.shape[1] * k_pages.shape[1]), q.shape[3]
    if INTERPRET:  # up to three, so that small cases have parts
        part = triton.cdiv(slots, 3 * 32) * 32
        return 32, triton.cdiv(slots, part), part
    size = D * q.element_size()
    BLOCK_N = max(16, min(128, BLOCK_BYTES // size))
    return BLOCK_N, *parts_of(q.shape[0] * k_pages.shape[2], slots, BLOCK_N, 2 * BLOCK_N * size, multiprocessors(q))
