"""The cross entropy of a linear layer's logits with targets, and its gradients, in Triton: blocks of columns.

The logits of a block are computed twice: for the sum of each row's exponentials, and for the gradients. All logits of a
large vocabulary would take more memory than the weight.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor

from triton_kernels._common.tiles import grouped_tile_any
from triton_kernels._runtime.arguments import check_sizes
from triton_kernels._runtime.interpreter import INTERPRET, empty_output, finished_output
from triton_kernels._runtime.launch import device_of, kept, launch
from triton_kernels._runtime.losses import check_linear_cross_entropy
from triton_kernels.cross_entropy._count import BLOCK, count_kernel
from triton_kernels.matmul import multiply_add

DETERMINISTIC = True
LOGITS = 2**23  # per block of columns; its arrays are small beside the weight of a large vocabulary
GROUP_M = 8  # tile rows per group of the tile scheduler
COLUMNS = 2**12 if INTERPRET else 1024  # columns that a program loads at a time

Losses = Float[Tensor, "T"]
Features = Float[Tensor, "T H"]
Weight = Float[Tensor, "V H"]


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    ADD: tl.constexpr, GROUP_M: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program computes one tile of C = A B, or C + A B, [BLOCK_M, BLOCK_N], in float32. C is contiguous."""
    pid_m, pid_n = grouped_tile_any(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (offs_m < M) & (offs_n < N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if ADD:
        acc = tl.load(c_ptr + offs_m * N + offs_n, mask=inside, other=0.0)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m * stride_am + k[None, :] * stride_ak
        b_ptrs = b_ptr + k[:, None] * stride_bk + offs_n * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < K) & (offs_n < N), other=0.0)
        acc = multiply_add(a, b, acc, "ieee")
    tl.store(c_ptr + offs_m * N + offs_n, acc, mask=inside)


@triton.jit
def sums_kernel(z_ptr, target_ptr, row_ptr, T, first, N, stride_target, FIRST: tl.constexpr, COLUMNS: tl.constexpr):
    """One program adds the logits of a block, (T, N) from column `first` on, to the sums of one row.

    row: three vectors (T,): largest logit m, the sum l of exp(z - m), and the target's logit, NaN until it is seen.
    """
    row = tl.program_id(0).to(tl.int64)
    m = tl.full((1,), float("-inf"), tl.float32)
    l = tl.zeros((1,), tl.float32)  # noqa: E741
    wanted = tl.full((1,), float("nan"), tl.float32)
    at_row = row_ptr + row + tl.arange(0, 1)
    if not FIRST:
        m, l, wanted = tl.load(at_row), tl.load(at_row + T), tl.load(at_row + 2 * T)  # noqa: E741
    offs = tl.arange(0, COLUMNS)
    for start in range(0, N, COLUMNS):
        z = tl.load(z_ptr + row * N + start + offs, mask=start + offs < N, other=float("-inf"))
        previous = m
        m = tl.maximum(m, tl.max(z, 0))
        base = tl.where(m == float("-inf"), 0.0, m)
        l = l * tl.exp(previous - base) + tl.sum(tl.exp(z - base), 0)  # noqa: E741
    column = tl.load(target_ptr + row * stride_target) - first
    found = (column >= 0) & (column < N)
    wanted = tl.where(found, tl.load(z_ptr + row * N + column, mask=found, other=0.0), wanted)
    tl.store(at_row, m)
    tl.store(at_row + T, l)
    tl.store(at_row + 2 * T, wanted)


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
    offs = tl.arange(0, COLUMNS)
    for start in range(0, N, COLUMNS):
        mask = start + offs < N
        z = tl.load(z_ptr + row * N + start + offs, mask=mask, other=0.0)
        p = tl.exp(z - base) / l - tl.where(first + start + offs == target, 1.0, 0.0)
        tl.store(dz_ptr + row * N + start + offs, tl.where(counted, p * share, 0.0), mask=mask)


@triton.jit
def round_kernel(x_ptr, out_ptr, N, COLUMNS: tl.constexpr):
    """out = x, rounded to the type of out."""
    offs = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < N), mask=offs < N)


def add_product(a: Tensor, b: Tensor, c: Tensor, *, add: bool = False) -> None:
    """c = a b, or with `add` c + a b. c is contiguous; float32, or without `add` also of the type of a."""
    (M, K), N = a.shape, b.shape[1]
    narrow = a.element_size() == 2
    tile = (256, 256, 256) if INTERPRET else (128, 128, 64) if narrow else (64, 64, 32)
    warps = 8 if narrow else 4
    grid = (triton.cdiv(M, tile[0]) * triton.cdiv(N, tile[1]),)
    launch(product_kernel, grid, a, b, c, M, N, K, *a.stride(), *b.stride(), add, GROUP_M, *tile, num_warps=warps)


@kept
def linear_cross_entropy(
    x: Features, weight: Weight, target: Int64[Tensor, "T"], *, ignore_index: int = -100
) -> tuple[Losses, Features, Weight]:
    """(loss, dx, dweight): the `cross_entropy` of x weight^T with target, and the gradients of the mean loss.

    Shapes: x (T, H), weight (V, H), target (T,), any strides. The results are contiguous.
    Dtypes: float32, float16, bfloat16; target int64. Logits and sums are float32; the gradients of logits are rounded,
    as factors of products, and so are the results. The loss is float32.
    Memory: 4 T H bytes for the sums of dx, and 6 (in float32 8) for each logit of a block of about 2^23.
    Tail: masked; offsets are int64. A target that is no column gives NaN in its row of loss and dx, and in dweight.
    Errors: ValueError for other shapes, dtypes or devices; NotImplementedError for sizes above 2^26.
    Source: blocks of logits: Hsu et al., "Liger Kernel", 2024. Here blocks of columns: each dweight is one sum.
    """
    T, V, H = check_linear_cross_entropy(x, weight, target)
    check_sizes("linear_cross_entropy", T, max(V, H), H)
    if T == 0 or V == 0:
        return x.new_zeros(T, dtype=torch.float32), x.new_zeros(T, H), weight.new_zeros(V, H)
    columns = min(V, max(256, LOGITS // T))
    z, rows, share, loss, total = (
        torch.empty(size, dtype=torch.float32, device=x.device) for size in (T * columns, 3 * T, 1, T, T * H)
    )
    dz, dweight = (empty_output(shape, x.dtype, x.device) for shape in ((T * columns,), (V, H)))
    dx = empty_output((T, H), x.dtype, x.device)
    spans = [(first, min(first + columns, V)) for first in range(0, V, columns)]
    with device_of(x):
        launch(count_kernel, (1,), target, share, T, target.stride(0), ignore_index, BLOCK)
        for first, end in spans:
            add_product(x, weight[first:end].t(), z)
            launch(
                sums_kernel, (T,),
                z, target, rows, T, first, end - first, target.stride(0), first == 0, COLUMNS, num_warps=4,
            )  # fmt: skip
        for first, end in spans:
            add_product(x, weight[first:end].t(), z)
            launch(
                gradient_kernel, (T,),
                z, dz, target, rows, share, loss, T, first, end - first, target.stride(0), ignore_index, COLUMNS,
                num_warps=4,
            )  # fmt: skip
            gradients = dz[: T * (end - first)].view(T, end - first)
            add_product(gradients, weight[first:end], total.view(T, H), add=first > 0)
            add_product(gradients.t(), x, dweight[first:end])
        launch(round_kernel, (triton.cdiv(T * H, COLUMNS),), total, dx, T * H, COLUMNS, num_warps=4)
    return loss, finished_output(dx, x.dtype), finished_output(dweight, x.dtype)
