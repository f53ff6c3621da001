"""Cross entropy and its gradient in Triton: adds rows in registers, which are read once, to the plain kernel.

Rows too long for the registers of a program are read twice, in blocks. Eviction hints keep them in the L2 cache for the
second read, and in 16 bits blocks are loaded ahead of their use. Gradients are stored as if there were no target; then
the target's column is overwritten.
"""

import triton
import triton.language as tl

from triton_kernels._common.rows import blocks
from triton_kernels._runtime.interpreter import finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.losses import check_cross_entropy
from triton_kernels.cross_entropy._count import Logits, Loss, Target, nothing, outputs

DETERMINISTIC = True


@triton.jit
def power(x):
    """exp(x) for x <= 0, by one instruction of the hardware; results below 2^-126 are 0."""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def gradient(z, base, scale, offset):
    return power(z - base) * scale - offset


@triton.jit
def registers_kernel(
    logits_ptr, target_ptr, share_ptr, loss_ptr, out_ptr, T, V, stride_t, stride_v, stride_target, ignore_index,
    smoothing, BLOCK_T: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_T whole rows, [BLOCK_T, BLOCK_V], which it reads once. Ignored rows are not read."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    offs_v = tl.arange(0, BLOCK_V)[None, :]
    target = tl.load(target_ptr + rows * stride_target, mask=rows < T, other=ignore_index)
    counted = target != ignore_index
    mask = (rows[:, None] < T) & (offs_v < V)
    from_rows = logits_ptr + rows * stride_t
    pointers = from_rows[:, None] + offs_v.to(tl.int64) * stride_v
    z = tl.load(pointers, mask=mask & counted[:, None], other=float("-inf")).to(tl.float32)
    m = tl.max(z, 1)
    base = tl.where(m == float("-inf"), 0.0, m)
    l = tl.sum(power(z - base[:, None]), 1)  # noqa: E741

    inside = (target >= 0) & (target < V)
    wanted = tl.load(from_rows + target * stride_v, mask=inside & counted, other=float("nan")).to(tl.float32)
    share = tl.where(inside, tl.load(share_ptr), float("nan"))
    loss = (1.0 - smoothing) * (tl.log(l) + (base - wanted))
    if smoothing > 0.0:
        below = tl.sum(tl.where(offs_v < V, base[:, None] - z, 0.0), 1)
        loss += smoothing * (tl.log(l) + below / V)
    tl.store(loss_ptr + rows, tl.where(counted, loss, 0.0), mask=rows < T)
    scale, offset, peak = share / l, smoothing / V * share, (1.0 - smoothing) * share
    found = gradient(z, base[:, None], scale[:, None], offset[:, None])
    tl.store(out_ptr + rows[:, None] * V + offs_v, tl.where(counted[:, None], found, 0.0), mask=mask)
    tl.debug_barrier()
    of_target = gradient(wanted, base, scale, offset) - peak
    tl.store(out_ptr + rows * V + target, of_target, mask=inside & counted & (rows < T))


@triton.jit
def long_rows_kernel(
    logits_ptr, target_ptr, share_ptr, loss_ptr, out_ptr, V, stride_t, stride_v, stride_target, ignore_index, smoothing,
    BLOCK_V: tl.constexpr,
):  # fmt: skip
    """One program computes one row in blocks of BLOCK_V. It reads the row twice, the second time from the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride_t
    out_ptr += row * V
    offs_v = tl.arange(0, BLOCK_V).to(tl.int64)
    WIDE: tl.constexpr = logits_ptr.dtype.element_ty == tl.float32
    STAGES: tl.constexpr = 1 if WIDE else 3  # shared memory holds two blocks of 16-bit elements ahead
    target = tl.load(target_ptr + row * stride_target)
    if target == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        for start in range(0, V, BLOCK_V):
            tl.store(out_ptr + start + offs_v, tl.zeros((BLOCK_V,), tl.float32), mask=start + offs_v < V)
        return
    m = tl.full((1,), float("-inf"), tl.float32)
    base = tl.zeros((1,), tl.float32)
    l = tl.zeros((1,), tl.float32)  # noqa: E741
    total = tl.zeros((1,), tl.float32)
    for start in tl.range(0, V, BLOCK_V, num_stages=STAGES):
        mask = start + offs_v < V
        pointers = logits_ptr + (start + offs_v) * stride_v
        z = tl.load(pointers, mask=mask, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        previous = m
        m = tl.maximum(m, tl.max(z, 0))
        base = tl.where(m == float("-inf"), 0.0, m)
        l = l * power(previous - base) + tl.sum(power(z - base), 0)  # noqa: E741
        if smoothing > 0.0:
            total += tl.sum(tl.where(mask, z, 0.0), 0)

    inside = (target >= 0) & (target < V)
    wanted = tl.load(logits_ptr + target * stride_v, mask=inside, other=float("nan")).to(tl.float32)
    share = tl.where(inside, tl.load(share_ptr), float("nan"))
    loss = (1.0 - smoothing) * (tl.log(l) + (base - wanted))
    if smoothing > 0.0:
        loss += smoothing * (tl.log(l) + (base - total / V))
    tl.store(loss_ptr + row + tl.arange(0, 1), loss)
    scale, offset, peak = share / l, smoothing / V * share, (1.0 - smoothing) * share
    for start in tl.range(0, V, BLOCK_V, num_stages=STAGES):
        mask = start + offs_v < V
        pointers = logits_ptr + (start + offs_v) * stride_v
        z = tl.load(pointers, mask=mask, eviction_policy="evict_first").to(tl.float32)
        tl.store(out_ptr + start + offs_v, gradient(z, base, scale, offset), mask=mask, eviction_policy="evict_first")
    tl.debug_barrier()
    of_target = gradient(wanted, base, scale, offset) - peak
    tl.store(out_ptr + target + tl.arange(0, 1), of_target, mask=inside)


@kept
def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits): loss[t] = -sum over v of q[t, v] log softmax(logits[t])[v], dlogits = (softmax - q) / counted.

    Contract, dtypes, ignored rows and errors: those of the plain kernel.
    Shapes: logits (T, V), target (T,), any strides. The outputs are contiguous.
    Tail: columns beyond V are minus infinity. Offsets are int64. A target outside [0, V) gives NaN in its row.
    """
    T, V = check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    if logits.numel() == 0:
        return nothing(logits)
    block = blocks(V)
    with device_of(logits):
        loss, out, share = outputs(logits, target, ignore_index)
        arrays = (logits, target, share, loss, out)
        rest = (V, *logits.stride(), target.stride(0), ignore_index, label_smoothing)
        if block.holds_row:
            tile = (block.rows, block.columns)
            launch(registers_kernel, block.grid(T), *arrays, T, *rest, *tile, num_warps=block.warps)
        else:
            # Half a block: with the blocks that are loaded ahead, a whole one does not fit the registers.
            launch(long_rows_kernel, (T,), *arrays, *rest, block.columns // 2, num_warps=block.warps)
    return loss, finished_output(out, logits.dtype)
