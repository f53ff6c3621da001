"""The cross entropy of a linear layer's logits with targets in CUDA: adds products on Hopper's tensor cores.

The memory of dweight holds logits until the sums over all columns are known, so that most are computed once.
"""

from functools import lru_cache

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
LOGITS = 2**24
"""Logits of a block of columns; more if the further memory stays below a tenth of the inputs and results."""
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
    Memory: 4 T H bytes for the sums of dx, and 2 T for each column of a block: together at most a tenth of inputs and
    results, but always enough for a block of 2^24 logits. A single block needs no sums of dx.
    With T > H only the logits of H rows fit in dweight; those of the others are computed twice.
    A target outside [0, V) gives NaN in its row of loss and dx, and in dweight.
    Devices: CUDA, compute capability 9.0.
    Raises: ValueError for other shapes and dtypes; NotImplementedError for float32, for other sizes, strides and
    devices; build.CudaError if a launch fails.
    """
    T, V, H = check_linear_cross_entropy(x, weight, target)
    _check_operands(x, weight)
    columns, kept = _columns(T, V, H, *_device_of(x)), min(T, H)
    totals = T * H if columns < V else 0  # one block has no sums to keep
    loss, sums, total = (x.new_empty(size, dtype=torch.float32) for size in (T, 3 * T + 1, totals))
    gradients, dx, dweight = x.new_empty(T * columns), x.new_empty(T, H), x.new_empty(V, H)
    source, dtype = "linear_cross_entropy/wgmma", build.DTYPES[x.dtype]
    at_target = (target.stride(0), ignore_index)
    blocks = [(first, min(columns, V - first)) for first in range(0, V, columns)]

    def logits(first: int, n: int) -> list[tuple[int, Tensor, Tensor]]:
        """First row, logits and memory for gradients: of the rows whose logits dweight holds, and of the others."""
        dz = gradients[: T * n].view(T, n)
        stored = dweight[first : first + n].view(-1)[: kept * n].view(kept, n)
        return [(0, stored, dz[:kept]), *([(kept, dz[kept:], dz[kept:])] if kept < T else [])]

    def multiply(row: int, z: Tensor, first: int) -> None:
        count, n = z.shape
        product.run(_plan(count, n, H, *_device_of(x)), x[row : row + count], weight[first : first + n].t(), out=z)

    build.launch(source, "count_rows", x.device, target, sums, T, *at_target)
    for first, n in blocks:
        for row, z, _ in logits(first, n):
            multiply(row, z, first)
            build.launch(source, "add_block", x.device, z, target, sums, T, row, len(z), first, n, *at_target, dtype)
    for first, n in blocks:
        for row, z, dz in logits(first, n):
            if row > 0:
                multiply(row, z, first)
            build.launch(
                source, "gradients_of_block", x.device,
                z, dz, target, sums, loss, T, row, len(z), first, n, *at_target, dtype,
            )  # fmt: skip
        dz, block = gradients[: T * n].view(T, n), weight[first : first + n]
        build.launch(
            source, "add_dx", x.device,
            dz, block, total, dx, T, n, H, weight.stride(0), first == 0, first + n == V,
            _plan(T, H, n, *_device_of(x)).tile, dtype,
        )  # fmt: skip
        product.run(_plan(n, H, T, *_device_of(x)), dz.t(), x, out=dweight[first : first + n])
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


def _device_of(x: Tensor) -> tuple[int, torch.device | None]:
    """The multiprocessors, and the device by which times are predicted."""
    return (multiprocessors(x.device), x.device) if x.is_cuda else (1, None)


@lru_cache(maxsize=4096)
def _plan(M: int, N: int, K: int, processors: int, device: torch.device | None) -> Plan:
    """The tile of a product. K is not divided into parts: their sums would take memory of their own."""
    plans = [Plan("wgmma", tile, 1) for tile in TILES]
    return min(plans, key=lambda plan: _predicted_us(plan, M, N, K, processors, device))


def _predicted_us(plan: Plan, M: int, N: int, K: int, processors: int, device: torch.device | None) -> float:
    return predicted_us(plan, Problem(M, N, K, False, False, processors), costs_of(device))


@lru_cache(maxsize=256)
def _columns(T: int, V: int, H: int, processors: int, device: torch.device | None) -> int:
    """The columns of a block, within the memory of `linear_cross_entropy`, for which the products take the least time.

    Blocks of half as many columns are tried too: the last tiles of a product may leave multiprocessors idle.
    """
    # 2 T n + 4 T H <= (4 T H + 4 V H) / 10
    most = max(STEP, LOGITS // T // STEP * STEP, ((T + V) * H // (5 * T) - 2 * H) // STEP * STEP)
    if most >= V:
        return V

    def block_us(n: int) -> float:
        sizes = ((T, n, H), (T, H, n), (n, H, T))
        times = (_predicted_us(_plan(*each, processors, device), *each, processors, device) for each in sizes)
        return sum(times) + 8 * T * H / costs_of(device).dram_bytes_per_us  # total is read and written

    def all_us(n: int) -> float:
        return V // n * block_us(n) + (block_us(V % n) if V % n else 0.0)

    return min(range(most, most // 2, -STEP), key=all_us)
