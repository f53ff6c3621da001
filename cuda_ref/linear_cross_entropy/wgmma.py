"""The cross entropy of a linear layer's logits with targets in CUDA: adds products on Hopper's tensor cores."""

import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.kept import kept
from cuda_ref._runtime.losses import check_linear_cross_entropy
from cuda_ref.hopper.layouts import find_tma_layout
from cuda_ref.linear_cross_entropy import Features, Loss, Target, Weight
from cuda_ref.matmul import wgmma as product
from cuda_ref.matmul._model import costs_of, predicted_us
from cuda_ref.matmul._plan import multiprocessors
from cuda_ref.matmul._tiles import Plan, Problem

DETERMINISTIC = True
REQUIRES = "sm_90"
LOGITS = 2**24  # per block of columns: 32 MiB, less than the 50 MB of an H100's L2 cache
STEP = 256  # columns of the widest tile
TILES = (1, 2, 3)
"""The tiles of matmul/wgmma.cu with two consumer warpgroups."""


@kept
def linear_cross_entropy(
    x: Features, weight: Weight, target: Target, *, ignore_index: int = -100
) -> tuple[Loss, Features, Weight]:
    """(loss, dx, dweight): the `cross_entropy` of x weight^T with target, and the gradients of the mean loss.

    Shapes: x (T, H), weight (V, H), target (T,), V and H multiples of 8; the results are contiguous.
    Strides: rows of x and of weight contiguous, at multiples of 16 bytes.
    Dtypes: float16, bfloat16; target int64. Sums in float32; logits, their gradients and the results are rounded.
    Memory: 4 T H bytes for the sums of dx, and 2 for each logit of a block of about 2^24.
    A target that is no column gives NaN in its row of loss and dx, and in dweight.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for float32, for other sizes, strides and
    devices; build.CudaError if a launch fails.
    """
    T, V, H = check_linear_cross_entropy(x, weight, target)
    _check_operands(x, weight)
    columns = min(V, max(STEP, LOGITS // T // STEP * STEP))
    loss, sums, total = (x.new_empty(size, dtype=torch.float32) for size in (T, 3 * T + 1, T * H))
    logits, dx, dweight = x.new_empty(T * columns), x.new_empty(T, H), x.new_empty(V, H)
    source, dtype = "linear_cross_entropy/wgmma", build.DTYPES[x.dtype]
    at_target = (target.stride(0), ignore_index)
    blocks = [(first, min(columns, V - first)) for first in range(0, V, columns)]
    build.launch(source, "count_rows", x.device, target, sums, T, *at_target)
    for first, n in blocks:
        z = logits[: T * n].view(T, n)
        product.run(_plan(T, n, H, x), x, weight[first : first + n].t(), out=z)
        build.launch(source, "add_block", x.device, z, target, sums, T, first, n, *at_target, dtype)
    for first, n in blocks:
        z, block = logits[: T * n].view(T, n), weight[first : first + n]
        product.run(_plan(T, n, H, x), x, block.t(), out=z)
        build.launch(source, "gradients_of_block", x.device, z, target, sums, loss, T, first, n, *at_target, dtype)
        build.launch(
            source, "add_dx", x.device,
            z, block, total, dx, T, n, H, weight.stride(0), first == 0, _plan(T, H, n, x).tile, dtype,
        )  # fmt: skip
        product.run(_plan(n, H, T, x), z.t(), x, out=dweight[first : first + n])
    return loss, dx, dweight


def _check_operands(x: Tensor, weight: Tensor) -> None:
    (T, H), V = x.shape, weight.shape[0]
    if x.element_size() != 2 or T * V * H == 0 or V % 8 or H % 8 or max(T, V, H) > 2**30:
        raise NotImplementedError(
            "linear_cross_entropy: written for 16 bits, T from 1, V and H multiples of 8, up to 2^30; "
            f"got {x.dtype}, T={T}, V={V} and H={H}"
        )
    for name, matrix in (("x", x), ("weight", weight)):
        if find_tma_layout(matrix, 1, k_major_only=True) is None:
            raise NotImplementedError(
                f"linear_cross_entropy: rows of {name} must be contiguous, at multiples of 16 bytes; "
                f"got strides {matrix.stride()}"
            )


def _plan(M: int, N: int, K: int, x: Tensor) -> Plan:
    """The tile of a product. K is not divided into parts: their sums would take memory of their own."""
    problem = Problem(M, N, K, False, False, multiprocessors(x.device) if x.is_cuda else 1)
    costs = costs_of(x.device if x.is_cuda else None)
    return min((Plan("wgmma", tile, 1) for tile in TILES), key=lambda plan: predicted_us(plan, problem, costs))
