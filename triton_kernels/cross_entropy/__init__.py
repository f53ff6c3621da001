"""The cross entropy of each row of logits with its target, and its gradient, in Triton."""

import triton
import triton.language as tl

from triton_kernels._common.rows import LONGEST
from triton_kernels._runtime.interpreter import finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.losses import check_cross_entropy
from triton_kernels.cross_entropy._count import Logits, Loss, Target, nothing, outputs

DETERMINISTIC = True
BLOCK_V = LONGEST // 8  # columns that a program loads at a time


@triton.jit
def cross_entropy_kernel(
    logits_ptr, target_ptr, share_ptr, loss_ptr, out_ptr, V, stride_t, stride_v, stride_target, ignore_index, smoothing,
    BLOCK_V: tl.constexpr,
):  # fmt: skip
    """One program computes one row in blocks of BLOCK_V. It reads the row twice.

    m: largest logit so far. l: sum of exp(z - m), rescaled where m grows. base: m, or 0 while all logits are minus
    infinity, so that exp gives 0 and not NaN. total: sum of the logits.
    """
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * stride_t
    out_ptr += row * V
    offs = tl.arange(0, BLOCK_V).to(tl.int64)
    target = tl.load(target_ptr + row * stride_target)
    if target == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        for start in range(0, V, BLOCK_V):
            tl.store(out_ptr + start + offs, tl.zeros((BLOCK_V,), tl.float32), mask=start + offs < V)
        return
    m = tl.full((1,), float("-inf"), tl.float32)
    base = tl.zeros((1,), tl.float32)
    l = tl.zeros((1,), tl.float32)  # noqa: E741
    total = tl.zeros((1,), tl.float32)
    for start in range(0, V, BLOCK_V):
        mask = start + offs < V
        z = tl.load(logits_ptr + (start + offs) * stride_v, mask=mask, other=float("-inf")).to(tl.float32)
        previous = m
        m = tl.maximum(m, tl.max(z, 0))
        base = tl.where(m == float("-inf"), 0.0, m)
        l = l * tl.exp(previous - base) + tl.sum(tl.exp(z - base), 0)  # noqa: E741
        total += tl.sum(tl.where(mask, z, 0.0), 0)

    inside = (target >= 0) & (target < V)
    wanted = tl.load(logits_ptr + target * stride_v, mask=inside, other=float("nan")).to(tl.float32)
    share = tl.where(inside, tl.load(share_ptr), float("nan"))
    loss = (1.0 - smoothing) * (tl.log(l) + (base - wanted))
    if smoothing > 0.0:
        loss += smoothing * (tl.log(l) + (base - total / V))
    tl.store(loss_ptr + row + tl.arange(0, 1), loss)
    for start in range(0, V, BLOCK_V):
        mask = start + offs < V
        z = tl.load(logits_ptr + (start + offs) * stride_v, mask=mask).to(tl.float32)
        expected = smoothing / V + tl.where(start + offs == target, 1.0 - smoothing, 0.0)
        tl.store(out_ptr + start + offs, (tl.exp(z - base) / l - expected) * share, mask=mask)


@kept
def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits): loss[t] = -sum over v of q[t, v] log softmax(logits[t])[v], dlogits = (softmax - q) / counted.

    q is 1 - label_smoothing at the target, plus label_smoothing / V. Rows whose target is `ignore_index` have loss 0
    and gradient 0, and do not count.

    Shapes: logits (T, V), target (T,), any strides. The outputs are contiguous.
    Dtypes: float32, float16, bfloat16; target int64. float32 inside, rounded once; the loss is float32.
    Tail: columns beyond V are minus infinity. Offsets are int64. A target outside [0, V) gives NaN in its row.
    Errors: ValueError for other shapes, dtypes or devices.
    Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; loss and gradient in one
    kernel: Hsu et al., "Liger Kernel", 2024.
    """
    T, V = check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    if logits.numel() == 0:
        return nothing(logits)
    with device_of(logits):
        loss, out, share = outputs(logits, target, ignore_index)
        launch(
            cross_entropy_kernel, (T,),
            logits, target, share, loss, out, V, *logits.stride(), target.stride(0), ignore_index, label_smoothing,
            min(BLOCK_V, triton.next_power_of_2(V)), num_warps=4,
        )  # fmt: skip
    return loss, finished_output(out, logits.dtype)
