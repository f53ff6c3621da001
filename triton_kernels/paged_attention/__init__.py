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
from triton_kernels.attention import HEAD_DIMS, LOG2_E, LOWEST

DETERMINISTIC = True
MOST_ROWS = 128
"""Most rows of a program: queries of all query heads of one key head."""
BLOCK_N = 128 if INTERPRET else 64


@triton.jit
def key_operand(ptrs, held, dtype: tl.constexpr):
    """Keys or values as an operand of a product with q. Numbers of float8 are exact in the type of q."""
    x = tl.load(ptrs, mask=held[:, None], other=0.0)
    if dtype == tl.bfloat16 and x.dtype == tl.float8e4nv and not INTERPRET:
        # The cast to bfloat16 rounds by an instruction of a quarter of the rate; cutting off the zeros does not.
        bits = x.to(tl.float16).to(tl.float32).to(tl.int32, bitcast=True)
        return (bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return dot_operand(x.to(dtype))


@triton.jit
def paged_attention_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, scale_k_ptr, scale_v_ptr, out_ptr, H_kv, S_q, G, page, qk_scale,
    stride_qb, stride_qs, stride_qh, stride_qd, stride_kp, stride_ks, stride_kh, stride_kd,
    stride_vp, stride_vs, stride_vh, stride_vd, stride_tb, stride_tp, stride_l,
    SCALED: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes one sequence and key head. Row r is query r // G of query head r % G of that key head."""
    b = (tl.program_id(0) // H_kv).to(tl.int64)
    h_kv = (tl.program_id(0) % H_kv).to(tl.int64)
    length = tl.load(lengths_ptr + b * stride_l)
    rows = tl.arange(0, BLOCK_M)
    queries, heads = (rows // G).to(tl.int64), h_kv * G + rows % G
    inside = rows[:, None] < S_q * G
    offs_d = tl.arange(0, D).to(tl.int64)
    q_ptrs = q_ptr + b * stride_qb + queries[:, None] * stride_qs + heads[:, None] * stride_qh
    q = dot_operand(tl.load(q_ptrs + offs_d[None, :] * stride_qd, mask=inside, other=0.0))  # [BLOCK_M, D]
    k_row = k_ptr + h_kv * stride_kh + offs_d * stride_kd
    v_row = v_ptr + h_kv * stride_vh + offs_d * stride_vd
    last_key = queries + (length - S_q)  # the last key that each query sees
    if SCALED:
        qk_scale *= tl.load(scale_k_ptr)

    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)  # maximum of the scores so far, in base 2
    l_i = tl.zeros((BLOCK_M,), tl.float32)  # sum of exp2(score - m_i)
    acc = tl.zeros((BLOCK_M, D), tl.float32)  # sum of exp2(score - m_i) v
    for start in range(0, length, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        held = keys < length
        at = tl.load(table_ptr + b * stride_tb + (keys // page).to(tl.int64) * stride_tp, mask=held, other=0)
        slots = (keys % page).to(tl.int64)
        k_at = at.to(tl.int64) * stride_kp + slots * stride_ks
        v_at = at.to(tl.int64) * stride_vp + slots * stride_vs
        k = key_operand(k_row[None, :] + k_at[:, None], held, q_ptr.dtype.element_ty)  # [BLOCK_N, D]
        v = key_operand(v_row[None, :] + v_at[:, None], held, q_ptr.dtype.element_ty)  # [BLOCK_N, D]
        scores = tl.dot(q, k.T, input_precision="ieee") * qk_scale  # [BLOCK_M, BLOCK_N]
        scores = tl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m_i = m_new
    out = acc / tl.where(last_key < 0, 1.0, l_i)[:, None]  # a query that sees no key gives zeros
    if SCALED:
        out *= tl.load(scale_v_ptr)
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
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, more
    than 128 queries of one key head (S_q H / H_kv), and float8 before compute capability 8.9.
    Source: FlashAttention-2 (Dao, 2023); pages: "Efficient Memory Management for Large Language Model Serving with
    PagedAttention" (Kwon et al., 2023).
    """
    B, S_q, H, H_kv, page, D = check_paged_attention(q, k_pages, v_pages, table, lengths, scale_k, scale_v)
    check_limits(q, H_kv, sm_scale, scaled=scale_k is not None)
    out = empty_output(q.shape, q.dtype, q.device)
    if q.numel() > 0:
        with device_of(q):
            launch(
                paged_attention_kernel, (B * H_kv,),
                q, k_pages, v_pages, table, lengths, *scales_or(q, scale_k, scale_v), out,
                H_kv, S_q, H // H_kv, page, scale_log2(D, sm_scale),
                *q.stride(), *k_pages.stride(), *v_pages.stride(), *table.stride(), *lengths.stride(),
                SCALED=scale_k is not None, D=D, BLOCK_M=block_of(S_q * (H // H_kv)), BLOCK_N=BLOCK_N, num_warps=4,
            )  # fmt: skip
    return finished_output(out, q.dtype)


def scales_or(q: Tensor, scale_k: Tensor | None, scale_v: Tensor | None) -> tuple[Tensor, Tensor]:
    """The scales; without scales q twice, which the kernel then does not read."""
    return (q, q) if scale_k is None or scale_v is None else (scale_k, scale_v)


def check_limits(q: Tensor, H_kv: int, sm_scale: float | None, *, scaled: bool) -> None:
    """Raises NotImplementedError for cases that the kernels do not cover. scaled: the pages are float8."""
    if scaled:
        check_float8("paged_attention", q)
    S_q, H, D = q.shape[1:]
    check_head(D, HEAD_DIMS, sm_scale, "paged_attention")
    rows = S_q * (H // H_kv) if H_kv else 0
    if rows > MOST_ROWS:
        raise NotImplementedError(f"paged_attention: S_q * H / H_kv must be at most {MOST_ROWS}; got {rows}")


def block_of(rows: int) -> int:
    """Rows of a tile that holds all `rows`; tensor cores take 16 at least."""
    return max(16, triton.next_power_of_2(rows))


def scale_log2(D: int, sm_scale: float | None) -> float:
    """The factor of the scores, whose exponentials are powers of 2."""
    return (D**-0.5 if sm_scale is None else sm_scale) * LOG2_E
