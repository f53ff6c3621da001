"""Operations of gluon.py on rows: softmax, masks and sums in registers, stores by TMA, and rows computed again."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import tma

from triton_kernels.attention import _configs_gluon as _configs_attention_gluon

ROWS = gl.constexpr(_configs_attention_gluon.ROWS)
OUT_COLUMNS = gl.constexpr(_configs_attention_gluon.OUT_COLUMNS)
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global  # renamed after Triton 3.7


@gluon.jit
def halved(x):
    """Adds the left half of x's columns to the right half; every element stays in its thread."""
    left, right = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute([0, 2, 1]).split()
    return left + right


@gluon.jit
def row_sums(p, COLUMNS: gl.constexpr):
    """Sums, for each row, the columns that are equal modulo COLUMNS. For COLUMNS >= 8 these lie in one thread."""
    if p.shape[1] == COLUMNS:
        return p
    else:
        return row_sums(halved(p), COLUMNS)


@gluon.jit
def weigh(s, m_i, l_i, qk_scale, LATE_SUM: gl.constexpr):
    """One block of the online softmax. Returns weights, the factor of all earlier sums, and the new maximum and sum."""
    m_new = gl.maximum(m_i, gl.max(s, 1))
    m_scaled = gl.where(m_new == float("-inf"), 0.0, m_new * qk_scale)  # exp2(-inf - 0) is 0, not NaN
    p = gl.exp2(s * qk_scale - m_scaled[:, None])
    alpha = gl.exp2(m_i * qk_scale - m_scaled)
    if LATE_SUM:
        part = row_sums(p, 8)
        l_new = l_i * gl.convert_layout(alpha, gl.SliceLayout(1, part.type.layout))[:, None] + part
    else:
        l_new = l_i * alpha + gl.sum(p, 1)
    return p, alpha, m_new, l_new


@gluon.jit
def hide(s, last):
    """Sets the scores of a row in columns after `last` to minus infinity.

    Column 8 i + 2 t + j is in registers (i, j) of thread t of a quad. A thread compares constants with one number per
    row; column numbers would take a register each, throughout the loops.
    """
    parts = s.reshape([s.shape[0], s.shape[1] // 8, 4, 2])
    LAYOUT: gl.constexpr = parts.type.layout
    i = gl.arange(0, s.shape[1] // 8, gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT))))
    t = gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, LAYOUT))))
    j = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, LAYOUT))))
    last = gl.convert_layout(last, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, LAYOUT))))
    column = 8 * i[None, :, None, None] + j[None, None, None, :]
    limits = last[:, None, None, None] - 2 * t[None, None, :, None]
    parts = gl.where(column <= limits, parts, float("-inf"))
    return gl.convert_layout(parts.reshape(s.shape), s.type.layout)


@gluon.jit
def columns(x, PARTS: gl.constexpr):
    """Splits x into PARTS blocks of columns; every element stays in its register."""
    if PARTS == 1:
        return (x,)
    else:
        left, right = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute([0, 2, 1]).split()
        return columns(left, PARTS // 2) + columns(right, PARTS // 2)


@gluon.jit
def store(out, o_desc, o_smem, b, h, row, consumer: gl.constexpr, CONSUMERS: gl.constexpr):
    """Stores ROWS rows of the output by TMA, in parts: the next is written to shared memory while TMA reads one."""
    OUT_BUFFERS: gl.constexpr = o_smem.shape[0] // CONSUMERS
    parts = columns(out, out.shape[1] // OUT_COLUMNS)
    gl.static_assert(len(parts) % OUT_BUFFERS == 0)
    for i in gl.static_range(len(parts)):
        buffer = o_smem.index(consumer * OUT_BUFFERS + i % OUT_BUFFERS)
        tma.store_wait(OUT_BUFFERS - 1)  # until this buffer has been read
        buffer.reshape([ROWS, OUT_COLUMNS]).store(parts[i].to(o_smem.dtype))
        hopper.fence_async_shared()
        tma_store(o_desc, [b, h, row, i * OUT_COLUMNS], buffer)


@gluon.jit
def store_statistics(out, lse, grad, sizes, b, h, start_m):
    """Stores the statistics of ROWS rows from start_m on: lse, and delta, the row sum of do * out."""
    do_ptr, lse_ptr, delta_ptr, stride_ob, stride_oh, stride_om = grad
    H, _, _, S_q, _, _ = sizes
    rows = start_m + gl.arange(0, ROWS, gl.SliceLayout(1, out.type.layout))
    offs_d = gl.arange(0, out.shape[1], gl.SliceLayout(0, out.type.layout))
    inside = rows < S_q
    do_ptr += b.to(gl.int64) * stride_ob + h.to(gl.int64) * stride_oh
    do_ptrs = do_ptr + rows.to(gl.int64)[:, None] * stride_om + offs_d[None, :]
    do = gl.load(do_ptrs, mask=inside[:, None], other=0.0).to(gl.float32)
    at = (b.to(gl.int64) * H + h) * S_q + rows
    gl.store(lse_ptr + at, lse, mask=inside)
    gl.store(delta_ptr + at, gl.sum(out * do, 1), mask=inside)


@gluon.jit
def attend_by_key(memory, strides, grad, sizes, b, h, start_m, qk_scale, D: gl.constexpr):
    """Computes and stores ROWS rows of one head, with a causal mask, one key at a time.

    Hidden keys are left out instead of weighted by 0. Rows are computed a few at a time, to save registers.
    """
    q_ptr, k_ptr, v_ptr, out_ptr = memory
    _, _, _, stride_ob, stride_oh, stride_om = grad
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn = strides
    _, _, _, S_q, S_k, G = sizes
    q_ptr += b.to(gl.int64) * stride_qb + h.to(gl.int64) * stride_qh
    k_ptr += b.to(gl.int64) * stride_kb + (h // G).to(gl.int64) * stride_kh
    v_ptr += b.to(gl.int64) * stride_vb + (h // G).to(gl.int64) * stride_vh
    out_ptr += b.to(gl.int64) * stride_ob + h.to(gl.int64) * stride_oh
    PART: gl.constexpr = 16
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, D // 32], [1, 32], [4, 1], [1, 0])
    offs_d = gl.arange(0, D, gl.SliceLayout(0, LAYOUT))
    for start in range(start_m, min(start_m + ROWS, S_q), PART):
        rows = start + gl.arange(0, PART, gl.SliceLayout(1, LAYOUT))
        offs_m = rows.to(gl.int64)[:, None]
        row_mask = rows[:, None] < S_q
        q = gl.load(q_ptr + offs_m * stride_qm + offs_d[None, :], mask=row_mask, other=0.0).to(gl.float32)  # [PART, D]
        m_i = gl.full([PART], float("-inf"), gl.float32, gl.SliceLayout(1, LAYOUT))
        l_i = gl.zeros([PART], gl.float32, gl.SliceLayout(1, LAYOUT))
        acc = gl.zeros([PART, D], gl.float32, LAYOUT)
        k_ptrs = k_ptr + offs_d
        v_ptrs = v_ptr + offs_d
        for key in range(0, min(start + PART + S_k - S_q, S_k)):
            seen = key <= rows + (S_k - S_q)
            qk = gl.sum(q * gl.load(k_ptrs).to(gl.float32)[None, :], 1) * qk_scale
            qk = gl.where(seen, qk, float("-inf"))
            m_new = gl.maximum(m_i, qk)
            m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
            p = gl.exp2(qk - m_safe)
            alpha = gl.exp2(m_i - m_safe)
            l_i = l_i * alpha + p
            pv = p[:, None] * gl.load(v_ptrs).to(gl.float32)[None, :]
            acc = acc * alpha[:, None] + gl.where(seen[:, None], pv, 0.0)
            m_i = m_new
            k_ptrs += stride_kn
            v_ptrs += stride_vn
        out = gl.where((rows + (S_k - S_q) >= 0)[:, None], acc / l_i[:, None], 0.0)
        gl.store(out_ptr + offs_m * stride_om + offs_d[None, :], out.to(out_ptr.dtype.element_ty), mask=row_mask)
