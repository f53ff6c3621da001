"""Attention over a cache in pages, in Triton: a program follows its sequence's table, a block of keys at a time."""

import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

from triton_kernels._common.codes import check_float8
from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.caches import check_paged_attention
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels.attention import HEAD_DIMS
from triton_kernels.attention._rows import LOG2_E, LOWEST, load_scale, own_tile

DETERMINISTIC = True
BLOCK_N = 128 if INTERPRET else 64  # keys that a program adds at a time


@triton.jit
def paged_attention_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, scale_k_ptr, scale_v_ptr, out_ptr, H_kv, S_q, G, page, qk_scale,
    stride_qb, stride_qs, stride_qh, stride_qd, stride_kp, stride_ks, stride_kh, stride_kd,
    stride_vp, stride_vs, stride_vh, stride_vd, stride_tb, stride_tp, stride_l,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of one sequence and key head: row r is query r // G of its query head r % G."""
    head, start_m = own_tile(S_q * G, BLOCK_M)
    b, h_kv = head // H_kv, head % H_kv
    length = tl.load(lengths_ptr + b * stride_l)
    rows = start_m + tl.arange(0, BLOCK_M)
    queries, heads, inside = (rows // G).to(tl.int64), h_kv * G + rows % G, rows[:, None] < S_q * G
    offs_d = tl.arange(0, D).to(tl.int64)
    q_ptrs = q_ptr + b * stride_qb + queries[:, None] * stride_qs + heads[:, None] * stride_qh
    q = dot_operand(tl.load(q_ptrs + offs_d[None, :] * stride_qd, mask=inside, other=0.0))  # [BLOCK_M, D]
    k_row = k_ptr + h_kv * stride_kh + offs_d * stride_kd
    v_row = v_ptr + h_kv * stride_vh + offs_d * stride_vd
    last_key = queries + (length - S_q)  # the last key that each query sees
    qk_scale *= load_scale(scale_k_ptr)

    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)  # maximum of the scores so far, in base 2
    l_i = tl.zeros((BLOCK_M,), tl.float32)  # sum of exp2(score - m_i)
    acc = tl.zeros((BLOCK_M, D), tl.float32)  # sum of exp2(score - m_i) v
    end = tl.minimum((start_m + BLOCK_M - 1) // G + 1 + length - S_q, length)
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        held = keys < length
        at = tl.load(table_ptr + b * stride_tb + (keys // page).to(tl.int64) * stride_tp, mask=held, other=0)
        at, slots = at.to(tl.int64)[:, None], (keys % page).to(tl.int64)[:, None]
        k = tl.load(k_row[None, :] + at * stride_kp + slots * stride_ks, mask=held[:, None], other=0.0)
        v = tl.load(v_row[None, :] + at * stride_vp + slots * stride_vs, mask=held[:, None], other=0.0)
        k, v = dot_operand(k.to(q_ptr.dtype.element_ty)), dot_operand(v.to(q_ptr.dtype.element_ty))  # [BLOCK_N, D]
        scores = tl.dot(q, k.T, input_precision="ieee") * qk_scale  # [BLOCK_M, BLOCK_N]
        scores = tl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)  # brings the sums so far to the new maximum
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        m_i = m_new
    out = acc * load_scale(scale_v_ptr) / tl.where(last_key < 0, 1.0, l_i)[:, None]  # a query without a key gives 0
    out_ptrs = out_ptr + ((b * S_q + queries) * (H_kv * G) + heads)[:, None] * D + offs_d[None, :]
    tl.store(out_ptrs, out, mask=inside)


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

    Key j of sequence b is k_pages[table[b, j // page], j % page]. Query head h reads key head h // (H // H_kv).
    `sm_scale` defaults to 1 / sqrt(D). A query that sees no key gives zeros. Slots without a token are not read.

    Shapes: q (B, S_q, H, D), pages (P, page, H_kv, D), table (B, pages), lengths (B,); any strides, any page size. D is
    a power of two from 16 to 256. The output is contiguous.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and sums in float32, the probabilities
    rounded once for the second product); table and lengths int32.
    Pages of float8_e4m3fn have a scale each, of keys and of values: float32, of shape ().
    Tail: slots beyond the length are zeros, and their scores minus infinity. A NaN or an infinity among the last
    S_q - 1 values of a sequence may reach all its queries.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, and
    float8 before compute capability 8.9.
    Source: FlashAttention-2 (Dao, 2023); pages: "Efficient Memory Management for Large Language Model Serving with
    PagedAttention" (Kwon et al., 2023).
    """
    B, S_q, H, H_kv, page, D = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    check_head(D, HEAD_DIMS, sm_scale, "paged_attention")
    if scale_k is not None:
        check_float8("paged_attention", q)
    out = empty_output(q.shape, q.dtype, q.device)
    if q.numel() > 0:
        rows, qk_scale = S_q * (H // H_kv), (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E
        BLOCK_M = min(128, max(16, triton.next_power_of_2(rows)))  # tensor cores take 16 rows at least
        with device_of(q):
            launch(
                paged_attention_kernel, (B * H_kv * triton.cdiv(rows, BLOCK_M),),
                q, k_pages, v_pages, table, lengths, scale_k, scale_v, out, H_kv, S_q, H // H_kv, page, qk_scale,
                *q.stride(), *k_pages.stride(), *v_pages.stride(), *table.stride(), *lengths.stride(),
                D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=4,
            )  # fmt: skip
    return finished_output(out, q.dtype)
