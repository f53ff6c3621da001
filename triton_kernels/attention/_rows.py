"""Device functions of the plain attention kernels: the tile of a program, rows of an operand, one key at a time."""

import triton
import triton.language as tl

from triton_kernels._runtime.interpreter import dot_operand
from triton_kernels.attention._masks import is_seen

LOG2_E = 1.4426950408889634
LOWEST = tl.constexpr(-3.4028234663852886e38)  # first maximum: unlike -inf, it can be subtracted from -inf


@triton.jit
def own_tile(count, BLOCK: tl.constexpr):
    """Head of this program, counted over all batch entries, and the first row of its tile; a head has `count` rows."""
    tiles = tl.cdiv(count, BLOCK)
    return (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * BLOCK


@triton.jit
def load_rows(x_ptr, rows, count, stride_row, stride_d, D: tl.constexpr):
    """Rows of a matrix with `count` rows, [rows, D]; zeros beyond the last. Float8 numbers are exact in bfloat16."""
    offs = rows[:, None].to(tl.int64) * stride_row + tl.arange(0, D)[None, :].to(tl.int64) * stride_d
    x = tl.load(x_ptr + offs, mask=rows[:, None] < count, other=0.0)
    if x.dtype == tl.float8e4nv:
        x = x.to(tl.bfloat16)
    return dot_operand(x)


@triton.jit
def load_scale(ptr):
    """The scale of a float8 operand; 1 for None."""
    if ptr is None:
        return 1.0
    else:
        return tl.load(ptr)


@triton.jit
def has_nan(x):
    """True if any element of a tile is NaN."""
    return tl.max(tl.max((x != x).to(tl.int32), 1), 0) > 0


@triton.jit
def add_key(acc, l_i, m_i, q, k_ptrs, v_ptrs, seen, qk_scale):
    """Adds one key, for the rows where `seen`, to the sums acc, l_i, m_i of an online softmax. q is in float32."""
    qk = tl.sum(q * tl.load(k_ptrs).to(tl.float32)[None, :], 1) * qk_scale
    qk = tl.where(seen, qk, float("-inf"))
    m_new = tl.maximum(m_i, qk)
    p = tl.exp2(qk - m_new)
    alpha = tl.exp2(m_i - m_new)
    l_i = l_i * alpha + p
    pv = p[:, None] * tl.load(v_ptrs).to(tl.float32)[None, :]
    return acc * alpha[:, None] + tl.where(seen[:, None], pv, 0.0), l_i, m_new


@triton.jit
def attend_key_by_key(
    q, k_ptr, v_ptr, first, end, last_key, qk_scale, stride_kn, stride_kd, stride_vn, stride_vd, WINDOW: tl.constexpr
):
    """acc and l_i of a tile, one key at a time. A key that a query does not see is left out instead of weighted by 0.

    In a product of tiles, 0 times the NaN or infinity of a hidden value is NaN.
    """
    offs_d = tl.arange(0, q.shape[1]).to(tl.int64)
    m_i = tl.full((q.shape[0],), LOWEST, tl.float32)
    l_i = tl.zeros((q.shape[0],), tl.float32)
    acc = tl.zeros(q.shape, tl.float32)
    for key in tl.range(first, end, num_stages=1):
        at = tl.cast(key, tl.int64)
        k_ptrs, v_ptrs = k_ptr + at * stride_kn + offs_d * stride_kd, v_ptr + at * stride_vn + offs_d * stride_vd
        seen = is_seen(key, last_key, WINDOW)
        acc, l_i, m_i = add_key(acc, l_i, m_i, q.to(tl.float32), k_ptrs, v_ptrs, seen, qk_scale)
    return acc, l_i
