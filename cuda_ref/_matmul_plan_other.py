"""Plans of a matmul in tf32 and float8 on Hopper: the model of _matmul_times.py with constants of their own."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from cuda_ref._arguments import find_tma_layout
from cuda_ref._matmul_plan import multiprocessors
from cuda_ref._matmul_tiles import PARTS, TILES, Plan, Tile, blocks_of, count
from cuda_ref._matmul_tiles import Problem as Sizes
from cuda_ref._matmul_times import longest

FEW = 8
"""The most rows or columns of the kernel "few32"."""
FEW_STRIP, FEW_TERMS, FEW_WARPS, FEW_PARTS = 32, 32, 8, (1, 2, 4, 8)
"""Elements of the larger operand, and terms, that a warp multiplies at a time; warps that divide k, and blocks."""
PROMOTED_TILES = (0, 1, 2, 4)


class Problem(NamedTuple):
    """What the choice depends on."""

    kernel: str
    """"wgmma32" or "wgmma8"."""
    M: int
    """Of the product that the kernel computes: that of tf32 may be the transpose."""
    N: int
    K: int
    copied: int
    """Elements of operands that TMA cannot read."""
    multiprocessors: int
    few: bool = False
    """Whether "few32" can compute it."""
    promoted: bool = False


class Costs(NamedTuple):
    """Of an H200: microseconds, and bytes, elements or terms in a microsecond."""

    memory: float
    written: float
    l2: float
    launch: float
    block: float
    store: float
    scattered: float
    add: float
    copy: float = 2.0
    few_launch: float = 2.82
    few_step: float = 0.796
    few_row: float = 0.0586
    few_cluster: float = 0.929


COSTS = {
    # Fitted to tf32_float8_plans.csv (docs/lab/matmul_shapes.md).
    "wgmma32": Costs(3.3e6, 7.07e6, 1.43e7, launch=3.39, block=0.451, store=5.82e-05, scattered=4.04e6, add=0.575),
    # Of large products and of 16 bits; a fit to half of the times was worse on the other half.
    "wgmma8": Costs(4.6e6, 3.06e6, 7.67e6, launch=1.9, block=1.33, store=2.05e-05, scattered=3.05e6, add=2.3),
}


def tiles_of(x: Problem) -> Iterator[tuple[int, Tile]]:
    for index, tile in enumerate(TILES[x.kernel]):
        if not x.promoted or index in PROMOTED_TILES:
            yield index, tile


def candidates(x: Problem) -> Iterator[Plan]:
    """All plans that may be the best one: parts that the device has blocks for, with at least one step of k each."""
    sizes = Sizes(x.M, x.N, x.K, False, False, 0)
    for index, tile in tiles_of(x):
        blocks, steps = blocks_of(tile, sizes), count(x.K, tile.K)
        for parts in PARTS["wgmma"]:
            if parts == 1 or (parts <= steps and blocks * parts < 3 * x.multiprocessors):
                yield Plan(x.kernel, index, parts)
    if x.few:
        for parts in FEW_PARTS:
            if parts == 1 or parts * FEW_WARPS < 2 * count(x.K, FEW_TERMS):
                yield Plan("few32", 0, parts)


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan."""
    read, written = (4, 4) if x.kernel == "wgmma32" else (1, 2)  # bytes of an element
    costs = COSTS[x.kernel]
    memory = read * (x.M * x.K + x.K * x.N) / costs.memory + written * x.M * x.N / costs.written
    if plan.kernel == "few32":
        return _few_us(plan, x, memory)
    tile = TILES[plan.kernel][plan.tile]
    blocks = blocks_of(tile, Sizes(x.M, x.N, x.K, False, False, 0)) * plan.parts
    steps = count(count(x.K, tile.K), plan.parts)
    rounds = count(blocks // tile.cluster, x.multiprocessors // tile.cluster)
    alone = min(steps, tile.stages)  # before a block's neighbour in the cluster loads for it
    loaded = read * blocks * tile.K * (steps * tile.M + (alone + (steps - alone) / tile.cluster) * tile.N)
    busy = rounds * (costs.block + steps * tile.step_us + tile.M * tile.N * costs.store)
    us = costs.launch + longest(busy, memory, loaded / costs.l2)
    if x.copied:
        us += costs.copy + 2 * read * x.copied / costs.scattered
    if plan.parts > 1:
        us += costs.add + 8 * blocks * tile.M * tile.N / costs.scattered
    return us


def _few_us(plan: Plan, x: Problem, memory: float) -> float:
    """Launch, and the longer of reading memory and the steps of a warp, two blocks a multiprocessor."""
    costs = COSTS[x.kernel]
    few, size = sorted((x.M, x.N))
    blocks = count(size, FEW_STRIP) * plan.parts
    steps = count(x.K, FEW_TERMS * FEW_WARPS * plan.parts)
    busy = max(1.0, blocks / (2 * x.multiprocessors)) * steps * (costs.few_step + costs.few_row * few)
    return costs.few_launch + costs.few_cluster * (plan.parts > 1) + longest(busy, memory)


@lru_cache(maxsize=4096)
def best_of(x: Problem) -> Plan:
    """The plan that is predicted to be the fastest."""
    return min(candidates(x), key=lambda each: predicted_us(each, x))


def best_plan(a: Tensor, b: Tensor, precision: str) -> Plan:
    """The plan for two operands of float32, in tf32, or of float8. On a CPU one that says what is missing."""
    x = problem_of(a, b, precision)
    return best_of(x) if a.is_cuda else Plan(x.kernel, 0, 1)


def problem_of(a: Tensor, b: Tensor, precision: str) -> Problem:
    (M, K), N = a.shape, b.shape[1]
    tf32 = a.dtype == torch.float32
    found = [find_tma_layout(a, 1, k_major_only=not tf32), find_tma_layout(b, 0, k_major_only=not tf32)]
    few = tf32 and min(M, N) <= FEW and _rows_of_quads(b.t() if M <= N else a)
    across = [each is not None and each[0] for each in found]
    if all(across):
        found[1] = None
    copied = (found[0] is None) * M * K + (found[1] is None) * K * N
    sizes = (N, M) if across == [False, True] else (M, N)
    processors = multiprocessors(a.device) if a.is_cuda else 1
    return Problem("wgmma32" if tf32 else "wgmma8", *sizes, K, copied, processors, few, precision == "promoted")


def _rows_of_quads(x: Tensor) -> bool:
    """Whether TMA could read a matrix, in rows of multiples of 16 bytes."""
    layout = find_tma_layout(x, 1)
    return layout is not None and x.shape[0 if layout[0] else 1] % 4 == 0
