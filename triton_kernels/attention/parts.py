"""Attention in Triton of a few queries: the keys of a head are divided among programs (split-K over keys).

Adds to `triton/packed`: a call with few tiles of queries occupies every multiprocessor. A second kernel adds the
parts.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._runtime.configs import multiprocessors
from triton_kernels._runtime.contract import check_attention
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention._rows import LOG2_E, LOWEST, add_key
from triton_kernels.attention._softmax import check_limits, online_softmax

DETERMINISTIC = True
MOST_QUERIES = 16
"""Most queries. Up to this number memory limits the time and every key is read once: tile sizes do not matter."""
OPTIONS = {"num_warps": 4, "num_stages": 4}
BLOCK_BYTES = 2**14  # size of a block of keys
RESIDENT = 2  # programs that fit into the shared memory of a multiprocessor
STEP_US = 0.5  # least time of a block of keys and values
START_US = 1.5  # time of a program besides its blocks
ADDING_US = 3.0  # time of the second kernel
BYTES_PER_US = 4.4e6  # bandwidth of device memory
PARTS_TOGETHER = 32  # parts that the second kernel loads at a time


@triton.jit(do_not_specialize=["S_k", "PART", "PARTS"])
def parts_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, sums_ptr, statistics_ptr, H, H_kv, S_q, S_k, PART, PARTS, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    CAUSAL: tl.constexpr, WHOLE: tl.constexpr, V_LIKE_K: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program reads PART keys of one key head, for BLOCK_M rows: row r is query r // G of head r % G.

    It stores acc, m_i and l_i of its part. If there is only one part (WHOLE), it stores rows of the output, which is
    contiguous.
    """
    tiles = tl.cdiv(S_q * G, BLOCK_M)
    start_m = tl.program_id(0) % tiles * BLOCK_M
    part = tl.program_id(0) // tiles % PARTS
    head = tl.program_id(0) // tiles // PARTS
    b = (head // H_kv).to(tl.int64)
    h_kv = (head % H_kv).to(tl.int64)
    rows = start_m + tl.arange(0, BLOCK_M)
    queries = (rows // G).to(tl.int64)
    heads = h_kv * G + rows % G
    offs_d = tl.arange(0, D)
    inside = rows[:, None] < S_q * G
    q_ptrs = q_ptr + b * stride_qb + heads[:, None] * stride_qh + queries[:, None] * stride_qm
    q = tl.load(q_ptrs + offs_d[None, :].to(tl.int64) * stride_qd, mask=inside, other=0.0)  # [BLOCK_M, D]
    k_ptr += b * stride_kb + h_kv * stride_kh
    v_ptr += b * stride_vb + h_kv * stride_vh

    first = part * PART
    end = tl.minimum(first + PART, S_k)
    common = tl.maximum(S_k - S_q + 1, 0) if CAUSAL else S_k  # every row sees the keys before this one
    last = tl.minimum(end, common)
    full = first + tl.maximum(last - first, 0) // BLOCK_N * BLOCK_N
    k_first = k_ptr + first.to(tl.int64) * stride_kn
    v_first = v_ptr + first.to(tl.int64) * stride_vn
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    last_key = tl.full((BLOCK_M,), common - 1, tl.int32)
    acc, l_i, m_i = online_softmax(
        acc, l_i, m_i, dot_operand(q), k_first, v_first, first, full, last_key, last, qk_scale,
        stride_kn, stride_kd, stride_vn, stride_vd, False, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    k_full = k_ptr + full.to(tl.int64) * stride_kn
    v_full = v_ptr + full.to(tl.int64) * stride_vn
    acc, l_i, m_i = online_softmax(
        acc, l_i, m_i, dot_operand(q), k_full, v_full, full, last, last_key, last, qk_scale,
        stride_kn, stride_kd, stride_vn, stride_vd, True, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    if CAUSAL:  # one by one, because 0 times a hidden NaN would be NaN
        for key in tl.range(tl.maximum(first, common), end, num_stages=1):
            at = tl.cast(key, tl.int64)
            k_ptrs = k_ptr + at * stride_kn + offs_d.to(tl.int64) * stride_kd
            v_ptrs = v_ptr + at * stride_vn + offs_d.to(tl.int64) * stride_vd
            seen = key <= queries + (S_k - S_q)
            acc, l_i, m_i = add_key(acc, l_i, m_i, q.to(tl.float32), k_ptrs, v_ptrs, seen, qk_scale)

    at = (b * H + heads) * S_q + queries  # [BLOCK_M]
    if WHOLE:
        blind = queries + (S_k - S_q) < 0 if CAUSAL else queries < 0
        out = acc / tl.where(blind, 1.0, l_i)[:, None]
        tl.store(out_ptr + at[:, None] * D + offs_d[None, :], out, mask=inside)
    else:
        at = at * PARTS + part
        tl.store(sums_ptr + at[:, None] * D + offs_d[None, :], acc, mask=inside)
        tl.store(statistics_ptr + at * 2, m_i, mask=rows < S_q * G)
        tl.store(statistics_ptr + at * 2 + 1, l_i, mask=rows < S_q * G)


@triton.jit(do_not_specialize=["S_k", "PARTS"])
def add_parts_kernel(
    sums_ptr, statistics_ptr, out_ptr, S_q, S_k, PARTS, CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
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
    if CAUSAL:  # a row without visible keys is 0; one whose visible keys all score -inf is 0 / 0
        l_i = tl.where(row % S_q + (S_k - S_q) < 0, 1.0, l_i)
    tl.store(out_ptr + row * D + offs_d, acc / l_i)


def parts_of(programs: int, S_k: int, BLOCK_N: int, block_bytes: int, processors: int) -> tuple[int, int]:
    """Number of parts of the keys, and keys per part, a multiple of BLOCK_N. It depends on sizes alone.

    Minimizes the predicted time of the multiprocessor with the most programs. Its bandwidth is its share of the memory
    bandwidth, or less if its programs, RESIDENT at a time, wait for their blocks.
    Args: programs: their number with a single part. block_bytes: bytes of a block of keys plus a block of values.
    """
    steps = triton.cdiv(S_k, BLOCK_N)

    def predicted_us(parts: int) -> float:
        most, each = triton.cdiv(programs * parts, processors), triton.cdiv(steps, parts)
        rounds = triton.cdiv(most, RESIDENT)
        loading = max(most * each * block_bytes * processors / BYTES_PER_US, rounds * each * STEP_US)
        return loading + rounds * START_US + (ADDING_US if parts > 1 else 0.0)

    parts = min(range(1, max(1, min(steps, RESIDENT * processors)) + 1), key=predicted_us)
    each = triton.cdiv(steps, parts)
    return triton.cdiv(steps, each), each * BLOCK_N


class Division(NamedTuple):
    """The division of a call into tiles, blocks of keys and parts."""

    BLOCK_M: int
    """Rows of a tile: queries of all query heads of one key head."""
    BLOCK_N: int
    """Keys of a block."""
    parts: int
    part: int
    """Keys of a part, a multiple of BLOCK_N."""
    programs: int
    """Programs of one part."""


def division(q: Tensor, k: Tensor) -> Division:
    """The division for q (B, H, S_q, D) and k (B, H_kv, S_k, D), not empty. It depends on shapes, dtype and device."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    rows = S_q * (H // H_kv)
    BLOCK_M = max(16, min(64, triton.next_power_of_2(rows)))
    programs = B * H_kv * triton.cdiv(rows, BLOCK_M)
    if INTERPRET:  # up to three, so that small cases have parts
        BLOCK_N = 32
        part = triton.cdiv(S_k, 3 * BLOCK_N) * BLOCK_N
        return Division(BLOCK_M, BLOCK_N, triton.cdiv(S_k, part), part, programs)
    BLOCK_N = max(16, min(128, BLOCK_BYTES // (D * k.element_size())))
    block_bytes = 2 * BLOCK_N * D * k.element_size()
    parts, part = parts_of(programs, S_k, BLOCK_N, block_bytes, multiprocessors(q))
    return Division(BLOCK_M, BLOCK_N, parts, part, programs)


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

    Shapes: q (B, H, S_q, D) with S_q up to 16, k and v (B, H_kv, S_k, D), any strides; query head h reads key head
    h // (H // H_kv). D is a power of two from 16 to 256. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    All query heads of a key head read its keys once. Nothing is tuned.
    Causal: query i sees keys up to i + S_k - S_q; a query that sees no key gives zeros, one whose keys all score minus
    infinity gives NaN. The keys that some queries do not see are added one at a time, so that their NaN and infinities
    do not reach the result.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and accumulation in float32, the
    probabilities rounded once for the second product).
    Memory: D + 2 float32 numbers for each row and part.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for more queries, other D, a negative
    sm_scale, or strides of k and v along S_k or D of 2**22 or more.
    Source: Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023), with packed query heads.
    """
    check_attention(q, k, v)
    check_limits(q, k, v, sm_scale)
    if q.shape[2] > MOST_QUERIES:
        raise NotImplementedError(f"attention: S_q must be at most {MOST_QUERIES}; got {q.shape[2]}")
    out = empty_output(q.shape, q.dtype, q.device)
    attend(q, k, v, out, causal, sm_scale)
    return finished_output(out, q.dtype)


def config(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None) -> str:
    """The kernels that `attention` runs, with tile and number of parts; empty if there is nothing to compute."""
    if q.numel() == 0 or k.shape[2] == 0:
        return ""
    each = division(q, k)
    return f"parts {each.BLOCK_M}x{each.BLOCK_N} count={each.parts}" + ("; add_parts" if each.parts > 1 else "")


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float | None) -> None:
    """Writes the result of `attention` to `out` (B, H, S_q, D), contiguous."""
    (B, H, S_q, D), (H_kv, S_k) = q.shape, k.shape[1:3]
    if q.numel() == 0 or S_k == 0:
        out.zero_()
        return
    BLOCK_M, BLOCK_N, parts, part, programs = division(q, k)
    qk_scale = (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E
    causal = causal and S_q > 1  # one query sees every key
    sums = statistics = out
    with device_of(q):
        if parts > 1:
            sums = torch.empty((B * H * S_q, parts, D), dtype=torch.float32, device=q.device)
            statistics = torch.empty((B * H * S_q, parts, 2), dtype=torch.float32, device=q.device)
        launch(
            parts_kernel, (programs * parts,),
            q, k, v, out, sums, statistics, H, H_kv, S_q, S_k, part, parts, qk_scale,
            *q.stride(), *k.stride(), *v.stride(),
            CAUSAL=causal, WHOLE=parts == 1, V_LIKE_K=k.stride()[2:] == v.stride()[2:], G=H // H_kv, D=D,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, **OPTIONS,
        )  # fmt: skip
        if parts > 1:
            launch(
                add_parts_kernel, (B * H * S_q,), sums, statistics, out, S_q, S_k, parts,
                CAUSAL=causal, D=D, BLOCK=PARTS_TOGETHER, num_warps=4,
            )  # fmt: skip
