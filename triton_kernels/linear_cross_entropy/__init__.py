"""The cross entropy of a linear layer's logits with targets, and its gradients, in Triton: blocks of columns.

The logits of a block are computed twice: for the sum of each row's exponentials, and for the gradients. All logits of a
large vocabulary would take more memory than the weight.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor

from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.losses import check_linear_cross_entropy
from triton_kernels.cross_entropy._count import BLOCK, count_kernel
from triton_kernels.linear_cross_entropy._product import multiply

DETERMINISTIC = True
LOGITS = 2**23  # per block of columns; its arrays are small beside the weight of a large vocabulary
COLUMNS = 2**12 if INTERPRET else 1024  # columns that a program loads at a time

Features = Float[Tensor, "T H"]
Weight = Float[Tensor, "V H"]


@triton.jit
def sums_kernel(z_ptr, target_ptr, row_ptr, T, first, N, stride_target, COLUMNS: tl.constexpr):
    """One program adds the logits of a block, (T, N) from column `first` on, to the sums of one row.

    row: three vectors (T,): largest logit m, the sum l of exp(z - m), and the target's logit, NaN until it is seen.
    """
    row = tl.program_id(0).to(tl.int64)
    m = tl.load(row_ptr + row, mask=first > 0, other=float("-inf"))
    l = tl.load(row_ptr + T + row, mask=first > 0, other=0.0)  # noqa: E741
    wanted = tl.load(row_ptr + 2 * T + row, mask=first > 0, other=float("nan"))
    offs = tl.arange(0, COLUMNS)
    for start in range(0, N, COLUMNS):
        z = tl.load(z_ptr + row * N + start + offs, mask=start + offs < N, other=float("-inf"))
        previous = m
        m = tl.maximum(m, tl.max(z, 0))
        base = tl.where(m == float("-inf"), 0.0, m)
        l = l * tl.exp(previous - base) + tl.sum(tl.exp(z - base), 0)  # noqa: E741
    column = tl.load(target_ptr + row * stride_target) - first
    found = (column >= 0) & (column < N)
    tl.store(row_ptr + row, m)
    tl.store(row_ptr + T + row, l)
    tl.store(row_ptr + 2 * T + row, tl.where(found, tl.load(z_ptr + row * N + column, mask=found, other=0.0), wanted))


@triton.jit
def gradient_kernel(
    z_ptr, dz_ptr, target_ptr, row_ptr, share_ptr, loss_ptr, T, first, N, stride_target, ignore_index,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """One program computes the gradients of one row of a block of logits, and the row's loss."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row * stride_target)
    m, l, wanted = tl.load(row_ptr + row), tl.load(row_ptr + T + row), tl.load(row_ptr + 2 * T + row)  # noqa: E741
    base = tl.where(m == float("-inf"), 0.0, m)
    counted = target != ignore_index
    share = tl.where(wanted == wanted, tl.load(share_ptr), float("nan"))
    tl.store(loss_ptr + row, tl.where(counted, tl.log(l) + (base - wanted), 0.0))
    for start in range(0, N, COLUMNS):
        offs = start + tl.arange(0, COLUMNS)
        z = tl.load(z_ptr + row * N + offs, mask=offs < N, other=0.0)
        p = tl.exp(z - base) / l - tl.where(first + offs == target, 1.0, 0.0)
        tl.store(dz_ptr + row * N + offs, tl.where(counted, p * share, 0.0), mask=offs < N)


@kept
def linear_cross_entropy(
    x: Features, weight: Weight, target: Int64[Tensor, "T"], *, ignore_index: int = -100
) -> tuple[Float[Tensor, "T"], Features, Weight]:
    """(loss, dx, dweight): the `cross_entropy` of x weight^T with target, and the gradients of the mean loss.

    Shapes: x (T, H), weight (V, H), target (T,), any strides. The results are contiguous.
    Dtypes: float32, float16, bfloat16; target int64. Logits and sums are float32; the gradients of logits are rounded,
    as factors of products, and so are the results. The loss is float32.
    Memory: 4 T H bytes for the sums of dx, and 6 (in float32 8) for each logit of a block of about 2^23.
    Tail: masked; offsets are int64. A target outside [0, V) gives NaN in its row of loss and dx, and in dweight.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for sizes above 2^26.
    Source: blocks of logits: Hsu et al., "Liger Kernel", 2024. Here blocks of columns: each dweight is one sum.
    """
    T, V, H = check_linear_cross_entropy(x, weight, target)
    check_sizes("linear_cross_entropy", T, max(V, H), H)
    if T == 0 or V == 0:
        return x.new_zeros(T, dtype=torch.float32), x.new_zeros(T, H), weight.new_zeros(V, H)
    columns, like = min(V, max(256, LOGITS // T)), {"dtype": torch.float32, "device": x.device}
    z, rows, share, loss = (torch.empty(size, **like) for size in (T * columns, 3 * T, 1, T))
    total = torch.empty((T, H), **like)  # dx of the blocks so far
    dz, dx, dweight = (empty_output(s, x.dtype, x.device) for s in ((T * columns,), (T, H), (V, H)))
    blocks = [(first, min(first + columns, V)) for first in range(0, V, columns)]
    stride = target.stride(0)
    with device_of(x):
        launch(count_kernel, (1,), target, share, T, stride, ignore_index, BLOCK)
        for first, end in blocks:
            multiply(x, weight[first:end].t(), z)
            launch(sums_kernel, (T,), z, target, rows, T, first, end - first, stride, COLUMNS, num_warps=4)
        for first, end in blocks:
            N, w = end - first, weight[first:end]
            multiply(x, w.t(), z)
            launch(
                gradient_kernel, (T,),
                z, dz, target, rows, share, loss, T, first, N, stride, ignore_index, COLUMNS, num_warps=4,
            )  # fmt: skip
            gradients = dz[: T * N].view(T, N)
            multiply(gradients, w, dx if end == V else total, base=total if first > 0 else None)
            multiply(gradients.t(), x, dweight[first:end])
    return loss, finished_output(dx, x.dtype), finished_output(dweight, x.dtype)
