"""Device functions of the attention variants: rows and keys of a tile, online softmax block by block and key by key."""

import triton
import triton.language as tl
from torch import Tensor

from triton_kernels._runtime.arguments import check_head
from triton_kernels._runtime.interpreter import INTERPRET, dot_operand
from triton_kernels.attention import HEAD_DIMS
from triton_kernels.attention._masks import is_seen
from triton_kernels.attention._rows import LOWEST, add_key

GROUP_BYTES = 2**24  # keys and values of the heads that run together: a third of an H200's L2 cache
COLUMNS = tl.constexpr(8)  # partial sums of a row: thread t of 4 holds columns 2t and 2t + 1 of every 8


def check_limits(q: Tensor, k: Tensor, v: Tensor, sm_scale: float | None) -> None:
    """Raises NotImplementedError for cases that the kernels with packed query heads do not cover."""
    check_head(q.shape[3], HEAD_DIMS, sm_scale)
    rows = q.shape[2] * (q.shape[1] // k.shape[1]) if k.shape[1] else 0
    if max(rows, k.shape[2]) > 2**30:
        raise NotImplementedError(
            f"attention: S_q * H / H_kv and S_k must be at most 2^30; got {rows} and {k.shape[2]}"
        )
    if max(*k.stride()[2:], *v.stride()[2:]) >= 2**22:
        raise NotImplementedError(
            f"attention: strides of k and v along S_k and D must be below 2**22; got {k.stride()} and {v.stride()}"
        )


def head_group(HEADS: int, head_bytes: int) -> int:
    """The number of key heads that run together; head_bytes: keys and values of one."""
    return min(HEADS, max(1, GROUP_BYTES // head_bytes))


@triton.jit
def head_and_rank(pid, tiles, HEADS, HEAD_GROUP):
    """Head of program `pid`, and the rank of its tile among the `tiles` of the head; in Triton and in Gluon.

    HEAD_GROUP heads run together, so that the data that all their tiles read stays in the L2 cache. If a mask makes
    tiles unequal, the first rank is the longest tile: short programs fill the end of the last wave.
    """
    first_head = pid // (HEAD_GROUP * tiles) * HEAD_GROUP
    heads_in_group = min(HEADS - first_head, HEAD_GROUP)
    in_group = pid % (HEAD_GROUP * tiles)
    return first_head + in_group % heads_in_group, in_group // heads_in_group


@triton.jit
def tile_of(count, HEADS, HEAD_GROUP, BLOCK_M: tl.constexpr):
    """Key head of this program, counted over all batch entries, and the first row of its tile; a head has `count` rows.

    The last rows, which see most keys under a mask, come first.
    """
    tiles = tl.cdiv(count, BLOCK_M)
    head, rank = head_and_rank(tl.program_id(0), tiles, HEADS, HEAD_GROUP)
    return head, (tiles - 1 - rank) * BLOCK_M


@triton.jit
def row_pointers(x_ptr, rows, h_kv, stride_h, stride_m, G: tl.constexpr):
    """Pointers to the rows of a key head, (rows, 1): row r is query r // G of query head h_kv G + r % G."""
    return x_ptr + (h_kv * G + rows % G)[:, None] * stride_h + (rows // G)[:, None].to(tl.int64) * stride_m


@triton.jit
def in_registers(q, D: tl.constexpr):
    """Copies q (rows, D) of 16 bits to registers, by an exact product with the identity; tl.dot would read a loaded
    operand from shared memory."""
    if INTERPRET:
        return q
    else:
        offs_d = tl.arange(0, D)
        return tl.dot(q, (offs_d[:, None] == offs_d[None, :]).to(q.dtype)).to(q.dtype)


@triton.jit
def visible_keys(
    start_m, S_q, S_k, CAUSAL: tl.constexpr, G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Returns the last key that each row of a tile sees, `full` and `end`.

    Keys before `full`, a multiple of BLOCK_N, are visible to every row of the tile, keys from `end` on to none.
    """
    if CAUSAL:
        shift = S_k - S_q
        last_key = tl.minimum((start_m + tl.arange(0, BLOCK_M)) // G + shift, S_k - 1)
        full = tl.minimum(tl.maximum(start_m // G + shift + 1, 0), S_k) // BLOCK_N * BLOCK_N
        end = tl.minimum((start_m + BLOCK_M - 1) // G + shift + 1, S_k)
    else:
        last_key = tl.full((BLOCK_M,), S_k - 1, tl.int32)
        full = S_k // BLOCK_N * BLOCK_N
        end = S_k
    return last_key, full, end


@triton.jit
def keys_in_window(
    start_m, S_q, S_k, full, WINDOW: tl.constexpr, G: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Returns `first` and `inner`, multiples of BLOCK_N: no row of a tile sees a key before `first`, and every row sees
    all keys from `inner` to `full`, which is that of `visible_keys`."""
    first_key = start_m // G + (S_k - S_q) - WINDOW + 1  # of the first row
    last_row = tl.minimum((start_m + BLOCK_M - 1) // G, S_q - 1)
    first = tl.minimum(tl.maximum(first_key, 0) // BLOCK_N * BLOCK_N, full)
    inner = tl.cdiv(tl.maximum(last_row + (S_k - S_q) - WINDOW + 1, 0), BLOCK_N) * BLOCK_N
    return first, tl.minimum(inner, full)


@triton.jit
def store_tile(out_ptrs, acc, l_i, last_key, rows, count, scale, CAUSAL: tl.constexpr):
    """Stores scale acc / l_i in the rows below `count`. If CAUSAL and a result is NaN, stores nothing and returns True.

    A hidden key has weight 0, but 0 times NaN or infinity is NaN, and tl.dot cannot leave a key out. The caller
    therefore computes a tile with a NaN again, without the hidden keys.
    A row without visible keys is 0. A row whose visible keys all score -inf is 0 / 0, NaN.
    """
    l_i = tl.sum(l_i, 1) if len(l_i.shape) == 2 else l_i
    nans = tl.max(tl.max(((acc != acc) & (rows[:, None] < count)).to(tl.int32), 1), 0) if CAUSAL else 0
    out = acc * (scale / tl.where(last_key < 0, 1.0, l_i))[:, None]
    tl.store(out_ptrs, out, mask=rows[:, None] < tl.where(nans == 0, count, 0))
    return nans > 0


@triton.jit
def weigh(qk, acc, l_i, m_i, keys, last_key, qk_scale, MASKED: tl.constexpr, WINDOW: tl.constexpr = 0):
    """Returns the weights exp2(score - maximum) of a block's keys, rescaled acc, l_i with these keys, the new maximum.

    qk (BLOCK_M, BLOCK_N): products without the scale. MASKED: some keys are after the last that a row sees, or, with a
    WINDOW, before the first.
    l_i (BLOCK_M), or (BLOCK_M, COLUMNS): sums of every eighth key, each in one thread.
    """
    if MASKED:
        qk = tl.where(is_seen(keys[None, :], last_key[:, None], WINDOW), qk * qk_scale, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp2(qk - m_new[:, None])
    else:
        m_new = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
        p = tl.exp2(tl.fma(qk, qk_scale, -m_new[:, None]))
    alpha = tl.exp2(m_i - m_new)
    if len(l_i.shape) == 2:
        l_i = l_i * alpha[:, None] + tl.sum(p.reshape(p.shape[0], p.shape[1] // COLUMNS, COLUMNS), 1)
    else:
        l_i = l_i * alpha + tl.sum(p, 1)
    return p, acc * alpha[:, None], l_i, m_new


@triton.jit
def online_softmax(
    acc, l_i, m_i, q, k_ptr, v_ptr, start, end, last_key, S_k, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd,
    MASKED: tl.constexpr, V_LIKE_K: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr = 0,
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
        p, acc, l_i, m_i = weigh(qk, acc, l_i, m_i, keys, last_key, qk_scale, MASKED, WINDOW)
        v = tl.load(v_ptr + v_offs, mask=keys[:, None] < S_k, other=0.0) if MASKED else tl.load(v_ptr + v_offs)
        v = dot_operand(v)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)  # [BLOCK_M, D]
        k_ptr += k_step
        v_ptr += v_step
    return acc, l_i, m_i


@triton.jit
def online_softmax_tma(
    acc, l_i, m_i, q, k_desc, v_desc, head, start, end, last_key, qk_scale,
    MASKED: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr, WINDOW: tl.constexpr = 0,
):  # fmt: skip
    """`online_softmax` in 16 bits, with blocks that TMA loads; zeros beyond the last key. head: batch entry and key
    head."""
    b, h_kv = head
    for start_n in range(start, end, BLOCK_N):
        k = dot_operand(k_desc.load([b, h_kv, start_n, 0]).reshape(BLOCK_N, D))
        qk = tl.dot(q, k.T)  # [BLOCK_M, BLOCK_N]
        keys = start_n + tl.arange(0, BLOCK_N)
        p, acc, l_i, m_i = weigh(qk, acc, l_i, m_i, keys, last_key, qk_scale, MASKED, WINDOW)
        v = dot_operand(v_desc.load([b, h_kv, start_n, 0]).reshape(BLOCK_N, D))
        acc = tl.dot(p.to(v.dtype), v, acc)  # [BLOCK_M, D]
    return acc, l_i, m_i


@triton.jit
def recompute_by_key(
    q_ptr, k_ptr, v_ptr, out_ptr, start_m, h_kv, S_q, S_k, shift, qk_scale, v_scale, stride_qh, stride_qm, stride_qd,
    stride_kn, stride_kd, stride_vn, stride_vd, stride_oh, stride_om,
    G: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, WINDOW: tl.constexpr = 0,
):  # fmt: skip
    """Computes and stores rows start_m to start_m + BLOCK_M of one key head, one key at a time. Query i sees i + shift.

    Hidden keys are left out instead of weighted by 0. Rows are computed a few at a time, to save registers.
    """
    ROWS: tl.constexpr = 16
    offs_d = tl.arange(0, D).to(tl.int64)
    for start in tl.range(start_m, tl.minimum(start_m + BLOCK_M, S_q * G), ROWS, num_stages=1):
        rows = start + tl.arange(0, ROWS)
        queries = (rows // G).to(tl.int64)
        row_mask = rows[:, None] < S_q * G
        q_ptrs = row_pointers(q_ptr, rows, h_kv, stride_qh, stride_qm, G) + offs_d[None, :] * stride_qd
        q = tl.load(q_ptrs, mask=row_mask, other=0.0).to(tl.float32)  # [ROWS, D]
        m_i = tl.full((ROWS,), LOWEST, tl.float32)
        l_i = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, D), tl.float32)
        k_ptrs = k_ptr + offs_d * stride_kd
        v_ptrs = v_ptr + offs_d * stride_vd
        for key in tl.range(0, tl.minimum((start + ROWS - 1) // G + shift + 1, S_k), num_stages=1):
            seen = is_seen(key, queries + shift, WINDOW)
            acc, l_i, m_i = add_key(acc, l_i, m_i, q, k_ptrs, v_ptrs, seen, qk_scale)
            k_ptrs += stride_kn
            v_ptrs += stride_vn
        out_ptrs = row_pointers(out_ptr, rows, h_kv, stride_oh, stride_om, G) + offs_d[None, :]
        blind = queries + shift < 0
        tl.store(out_ptrs, acc * v_scale / tl.where(blind, 1.0, l_i)[:, None], mask=row_mask)
