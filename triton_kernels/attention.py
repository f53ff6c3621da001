"""Attention in Triton, forward: softmax(q k^T) v in one pass over the keys; scores stay in registers."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from triton_kernels._arguments import check_attention, check_head
from triton_kernels._autotuner import autotune
from triton_kernels._configs_attention import CONFIGS, short_list, tuning_space  # noqa: F401
from triton_kernels._interpreter import INTERPRET, dot_operand, empty_output, finished_output
from triton_kernels._launch import device_of, kept, launch

DETERMINISTIC = True
HEAD_DIMS = (16, 32, 64, 128, 256)
GROUP_BYTES = 2**24  # keys and values of the heads that run together: a third of an H200's L2 cache
DECODING = 16  # most queries of a call that adds a few keys to many
LOG2_E = 1.4426950408889634
LOWEST = tl.constexpr(-3.4028234663852886e38)  # first maximum: unlike -inf, it can be subtracted from -inf


@triton.jit
def online_softmax(
    acc, l_i, m_i, q, k_ptr, v_ptr, start, end, last_key, S_k, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd,
    MASKED: tl.constexpr, V_LIKE_K: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Online softmax over keys start to end; k_ptr and v_ptr point to key `start`. Returns acc, l_i, m_i.

    m_i: running maximum of the scores in base 2, at least LOWEST. l_i: sum of exp2(score - m_i). acc: sum of
    exp2(score - m_i) v.
    MASKED: some keys are hidden from some rows, or lie beyond the last key.
    """
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    # 32-bit offsets within a block save registers (the launcher checks the strides); the base pointers are 64-bit.
    k_offs = offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd
    v_offs = k_offs if V_LIKE_K else offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd
    k_step = tl.full((), BLOCK_N, tl.int64) * stride_kn
    v_step = tl.full((), BLOCK_N, tl.int64) * stride_vn
    for start_n in range(start, end, BLOCK_N):
        keys = start_n + offs_n
        k = tl.load(k_ptr + k_offs, mask=keys[:, None] < S_k, other=0.0) if MASKED else tl.load(k_ptr + k_offs)
        k = dot_operand(k)
        qk = tl.dot(q, k.T, input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
        if MASKED:
            qk = tl.where(keys[None, :] <= last_key[:, None], qk * qk_scale, float("-inf"))
            m_new = tl.maximum(m_i, tl.max(qk, 1))
            p = tl.exp2(qk - m_new[:, None])
        else:
            m_new = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            p = tl.exp2(tl.fma(qk, qk_scale, -m_new[:, None]))
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptr + v_offs, mask=keys[:, None] < S_k, other=0.0) if MASKED else tl.load(v_ptr + v_offs)
        v = dot_operand(v)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)  # [BLOCK_M, D]
        m_i = m_new
        k_ptr += k_step
        v_ptr += v_step
    return acc, l_i, m_i


@triton.jit
def recompute_by_key(
    q_ptr, k_ptr, v_ptr, out_ptr, start_m, h_kv, S_q, S_k, qk_scale, stride_qh, stride_qm, stride_qd,
    stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om,
    G: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Computes and stores rows start_m to start_m + BLOCK_M of one key head, with a causal mask, one key at a time.

    Hidden keys are left out instead of weighted by 0. Few rows at a time need few registers.
    """
    ROWS: tl.constexpr = 16
    offs_d = tl.arange(0, D).to(tl.int64)
    for start in tl.range(start_m, start_m + BLOCK_M, ROWS, num_stages=1):
        rows = start + tl.arange(0, ROWS)
        queries = (rows // G).to(tl.int64)
        heads = h_kv * G + rows % G
        row_mask = rows[:, None] < S_q * G
        q_ptrs = q_ptr + heads[:, None] * stride_qh + queries[:, None] * stride_qm + offs_d[None, :] * stride_qd
        q = tl.load(q_ptrs, mask=row_mask, other=0.0).to(tl.float32)  # [ROWS, D]
        m_i = tl.full((ROWS,), LOWEST, tl.float32)
        l_i = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, D), tl.float32)
        k_ptrs = k_ptr + offs_d * stride_kd
        v_ptrs = v_ptr + offs_d * stride_vd
        for key in tl.range(0, tl.minimum((start + ROWS - 1) // G + S_k - S_q + 1, S_k), num_stages=1):
            seen = key <= queries + (S_k - S_q)
            qk = tl.sum(q * tl.load(k_ptrs).to(tl.float32)[None, :], 1) * qk_scale
            qk = tl.where(seen, qk, float("-inf"))
            m_new = tl.maximum(m_i, qk)
            p = tl.exp2(qk - m_new)
            alpha = tl.exp2(m_i - m_new)
            l_i = l_i * alpha + p
            pv = p[:, None] * tl.load(v_ptrs).to(tl.float32)[None, :]
            acc = acc * alpha[:, None] + tl.where(seen[:, None], pv, 0.0)
            m_i = m_new
            k_ptrs += stride_kn
            v_ptrs += stride_vn
        out_ptrs = out_ptr + heads[:, None] * stride_oh + queries[:, None] * stride_om + offs_d[None, :]
        blind = queries + (S_k - S_q) < 0
        tl.store(out_ptrs, acc / tl.where(blind, 1.0, l_i)[:, None], mask=row_mask)


@triton.jit(do_not_specialize=["S_k"])
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, HEADS, H_kv, S_q, KEYS, S_k, HEAD_GROUP, qk_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om,
    CAUSAL: tl.constexpr, V_LIKE_K: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of the output for one batch entry and key head.

    The G query heads of a key head are packed: row r is query r // G of head r % G. They share the keys and values
    that a program reads, and decoding (S_q = 1) still fills a tile.
    KEYS: number of keys. S_k: the same or more, for the autotuner's key alone.
    """
    # HEAD_GROUP heads run together, so that their keys and values stay in the L2 cache. Within a group the last
    # queries, which see most keys when causal, come first: short programs fill the end of the last wave.
    pid = tl.program_id(0)
    tiles = tl.cdiv(S_q * G, BLOCK_M)
    first_head = pid // (HEAD_GROUP * tiles) * HEAD_GROUP
    heads_in_group = min(HEADS - first_head, HEAD_GROUP)
    in_group = pid % (HEAD_GROUP * tiles)
    head = first_head + in_group % heads_in_group
    b = (head // H_kv).to(tl.int64)
    h_kv = (head % H_kv).to(tl.int64)
    start_m = (tiles - 1 - in_group // heads_in_group) * BLOCK_M

    rows = start_m + tl.arange(0, BLOCK_M)
    queries = rows // G
    heads = h_kv * G + rows % G
    offs_d = tl.arange(0, D)
    row_mask = rows[:, None] < S_q * G
    q_ptrs = q_ptr + b * stride_qb + heads[:, None] * stride_qh + queries[:, None].to(tl.int64) * stride_qm
    q = tl.load(q_ptrs + offs_d[None, :].to(tl.int64) * stride_qd, mask=row_mask, other=0.0)  # [BLOCK_M, D]
    q = dot_operand(q)
    k_ptr += b * stride_kb + h_kv * stride_kh
    v_ptr += b * stride_vb + h_kv * stride_vh

    # Keys before `full` are visible to every row of the tile, keys from `end` on to none.
    if CAUSAL:
        shift = KEYS - S_q
        last_key = tl.minimum(queries + shift, KEYS - 1)
        full = tl.minimum(tl.maximum(start_m // G + shift + 1, 0), KEYS) // BLOCK_N * BLOCK_N
        end = tl.minimum((start_m + BLOCK_M - 1) // G + shift + 1, KEYS)
    else:
        last_key = tl.full((BLOCK_M,), KEYS - 1, tl.int32)
        full = KEYS // BLOCK_N * BLOCK_N
        end = KEYS
    m_i = tl.full((BLOCK_M,), LOWEST, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    acc, l_i, m_i = online_softmax(
        acc, l_i, m_i, q, k_ptr, v_ptr, 0, full, last_key, KEYS, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd,
        False, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    k_full = k_ptr + full.to(tl.int64) * stride_kn
    v_full = v_ptr + full.to(tl.int64) * stride_vn
    acc, l_i, m_i = online_softmax(
        acc, l_i, m_i, q, k_full, v_full, full, end, last_key, KEYS, qk_scale,
        stride_kn, stride_kd, stride_vn, stride_vd, True, V_LIKE_K, "ieee", D, BLOCK_N,
    )  # fmt: skip
    # A hidden key has weight 0, but 0 times NaN or infinity is NaN, and tl.dot cannot leave a key out. So a tile with a
    # NaN is not stored, but computed again without the hidden keys.
    nans = tl.max(tl.max(((acc != acc) & row_mask).to(tl.int32), 1), 0) if CAUSAL else 0
    # A row without visible keys is 0; one whose visible keys all score -inf is 0 / 0.
    out = acc / tl.where(last_key < 0, 1.0, l_i)[:, None]
    out_ptrs = out_ptr + b * stride_ob + heads[:, None] * stride_oh + queries[:, None].to(tl.int64) * stride_om
    tl.store(out_ptrs + offs_d[None, :], out, mask=rows[:, None] < tl.where(nans == 0, S_q * G, 0))
    if nans > 0:
        recompute_by_key(
            q_ptr + b * stride_qb, k_ptr, v_ptr, out_ptr + b * stride_ob, start_m, h_kv, S_q, KEYS, qk_scale,
            stride_qh, stride_qm, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om,
            G, D, BLOCK_M,
        )  # fmt: skip


if INTERPRET:  # without autotuning: one tile that numpy multiplies fast
    TILE: dict[str, int] = {"BLOCK_M": 128, "BLOCK_N": 128}
else:  # tuned, or timed once per key and kept in Triton's cache folder
    TILE = {}
    attention_kernel = autotune(CONFIGS, ["HEADS", "G", "S_q", "S_k", "D", "CAUSAL"], short_list)(attention_kernel)


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

    Shapes: q (B, H, S_q, D), k and v (B, H_kv, S_k, D), any strides; query head h reads key head h // (H // H_kv). D is
    a power of two from 16 to 256. The output is contiguous. `sm_scale` defaults to 1 / sqrt(D).
    Causal: query i sees keys up to i + S_k - S_q; a query that sees no key gives zeros, one whose keys all score minus
    infinity gives NaN. NaN and infinities of hidden
    keys and values do not reach the result: a tile with a NaN is computed again, far more slowly.
    Dtypes: float32 (ieee products and sums), float16, bfloat16 (scores, softmax and accumulation in float32, the
    probabilities rounded once for the second product).
    Tail: only the blocks on the diagonal and the last one mask; blocks without visible keys are skipped.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for other D, a negative sm_scale, or
    strides of k and v along S_k or D of 2**22 or more.
    Source: FlashAttention-2 (Dao, 2023), with the query heads of a key head packed as in FlashAttention-3.
    """
    check_attention(q, k, v)
    H, S_q, D = q.shape[1:]
    H_kv, S_k = k.shape[1:3]
    _check_limits(S_q * (H // H_kv) if H_kv else 0, k, v, D, sm_scale)
    if q.numel() > 0 and S_k == 0:
        return torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    out = empty_output(q.shape, q.dtype, q.device)
    if q.numel() > 0:
        attend(q, k, v, out, causal, D**-0.5 if sm_scale is None else sm_scale)
    return finished_output(out, q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, causal: bool, sm_scale: float) -> None:
    """Writes attention's result to `out` (B, H, S_q, D), of any strides with contiguous rows; nothing is empty."""
    B, H, S_q, D = q.shape
    H_kv, S_k = k.shape[1:3]
    G = H // H_kv
    HEADS = B * H_kv
    HEAD_GROUP = min(HEADS, max(1, GROUP_BYTES // (2 * S_k * D * q.element_size())))
    with device_of(q):
        launch(
            attention_kernel, lambda tile: (HEADS * triton.cdiv(S_q * G, tile["BLOCK_M"]),),
            q, k, v, out, HEADS, H_kv, S_q, S_k, _tuned_length(S_q, S_k), HEAD_GROUP, sm_scale * LOG2_E,
            *q.stride(), *k.stride(), *v.stride(), *out.stride()[:3],
            CAUSAL=causal, V_LIKE_K=k.stride()[2:] == v.stride()[2:], G=G, D=D, **TILE,
        )  # fmt: skip


def _tuned_length(S_q: int, S_k: int) -> int:
    """Number of keys to tune for: when decoding the next power of two, so that a new key seldom means new tuning."""
    return triton.next_power_of_2(S_k) if S_q <= DECODING else S_k


def _check_limits(rows: int, k: Tensor, v: Tensor, D: int, sm_scale: float | None) -> None:
    """Raises NotImplementedError for what the kernel does not cover."""
    check_head(D, HEAD_DIMS, sm_scale)
    if max(rows, k.shape[2]) > 2**30:
        raise NotImplementedError(
            f"attention: S_q * H / H_kv and S_k must be at most 2^30; got {rows} and {k.shape[2]}"
        )
    if max(*k.stride()[2:], *v.stride()[2:]) >= 2**22:
        raise NotImplementedError(
            f"attention: strides of k and v along S_k and D must be below 2**22; got {k.stride()} and {v.stride()}"
        )
