"""Plans of a matmul in tf32 and float8 on Hopper: the model of _times.py with constants of their own."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from cuda_ref._runtime.arguments import find_tma_layout
from cuda_ref.hopper.pitched import LINE
from cuda_ref.matmul._plan import multiprocessors
from cuda_ref.matmul._tiles import PARTS, SKINNY_COLUMNS, SKINNY_M, TILES, Plan, Tile, blocks_of, count
from cuda_ref.matmul._tiles import Problem as Sizes
from cuda_ref.matmul._times import longest
from cuda_ref.matmul._times import predicted_us as predicted_us_of_16_bits

FEW = 8
"""The most rows or columns of the kernel "few32"."""
SKINNY_TERMS = 128
"""Of a step of "skinny8", which has as many rows or columns, and tiles, as that of 16 bits."""
SHORT_FEW, SHORT_TERMS = 8, 64
"""The most rows or columns, and terms, of the kernel "short8"; these are a multiple of 16."""
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
    short_launch: float = 1.9  # by hand, this one and the next
    short_term: float = 0.015
    skinny_launch: float = 0.06694  # more than in 16 bits
    skinny_slower: float = 1.045  # times the time in 16 bits
    skinny_rows: float = 1.207  # of 17 to 32 rows


COSTS = {
    # Fitted to choices in tf32_float8_plans.csv and, of float8, float8_few.csv too (docs/lab/matmul_shapes.md):
    # rates may be more or less than the device delivers.
    "wgmma32": Costs(3.3e6, 7.07e6, 1.43e7, launch=3.39, block=0.451, store=5.82e-05, scattered=4.04e6, add=0.575),
    "wgmma8": Costs(2.74e6, 2.499e7, 3.994e7, launch=1.334, block=0.7299, store=4.766e-5, scattered=6.96e6, add=2.114),
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
    if x.kernel == "wgmma8" and min(x.M, x.N) <= SKINNY_M:
        for index, columns in enumerate(SKINNY_COLUMNS):
            for parts in PARTS["skinny"]:
                blocks = count(max(x.M, x.N), columns) * parts
                if parts == 1 or (parts <= count(x.K, SKINNY_TERMS) and blocks < 6 * x.multiprocessors):
                    yield Plan("skinny8", index, parts)
    if x.kernel == "wgmma8" and min(x.M, x.N) <= SHORT_FEW and x.K <= SHORT_TERMS and x.K % 16 == 0 and not x.copied:
        yield Plan("short8", 0, 1)
    if x.few:
        for parts in FEW_PARTS:
            if parts == 1 or parts * FEW_WARPS < 2 * count(x.K, FEW_TERMS):
                yield Plan("few32", 0, parts)


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan."""
    read, written = (4, 4) if x.kernel == "wgmma32" else (1, 2)  # bytes of an element
    costs = COSTS[x.kernel]
    memory = read * (x.M * x.K + x.K * x.N) / costs.memory + written * x.M * x.N / costs.written
    copied = costs.copy + 2 * read * x.copied / costs.scattered if x.copied else 0.0
    if plan.kernel == "few32":
        return _few_us(plan, x, memory)
    if plan.kernel == "short8":
        return costs.short_launch + longest(x.K * costs.short_term, memory)
    if plan.kernel == "skinny8":
        return copied + _skinny_us(plan, x)
    tile = TILES[plan.kernel][plan.tile]
    blocks = blocks_of(tile, Sizes(x.M, x.N, x.K, False, False, 0)) * plan.parts
    steps = count(count(x.K, tile.K), plan.parts)
    rounds = count(blocks // tile.cluster, x.multiprocessors // tile.cluster)
    alone = min(steps, tile.stages)  # before a block's neighbour in the cluster loads for it
    loaded = read * blocks * tile.K * (steps * tile.M + (alone + (steps - alone) / tile.cluster) * tile.N)
    busy = rounds * (costs.block + steps * tile.step_us + tile.M * tile.N * costs.store)
    us = copied + costs.launch + longest(busy, memory, loaded / costs.l2)
    if plan.parts > 1:
        us += costs.add + 8 * blocks * tile.M * tile.N / costs.scattered
    return us


def _skinny_us(plan: Plan, x: Problem) -> float:
    """From that of 16 bits for half of the terms, which are as many bytes."""
    costs = COSTS[x.kernel]
    split = x.K % LINE != 0
    few, size = sorted((x.M, x.N))
    halves = Sizes(few, size, count(x.K, 2), False, False, x.multiprocessors, False, split, split)
    us = predicted_us_of_16_bits(Plan("skinny", plan.tile, plan.parts), halves)
    return costs.skinny_launch + costs.skinny_slower * us + costs.skinny_rows * (few > SKINNY_M // 2)


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
