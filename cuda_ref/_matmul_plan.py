"""Plans of a matmul in 16 bits on Hopper: which kernel, which tile, and in how many parts k is divided.

The choice is that of a model of few constants (docs/lab/matmul_shapes.md). A plan's work goes in rounds of blocks over
the multiprocessors. The time of a round is that of its steps of k, which is bound by latency if a multiprocessor has
few blocks, and by the tensor cores if it has many. All rounds together take no less than the traffic of device memory
and of the L2 cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from cuda_ref._arguments import find_tma_layout


@dataclass(frozen=True)
class Tile:
    """A tile of the output, K terms of the sum a step."""

    M: int
    N: int
    K: int
    step_us: float
    """Of a block alone on its multiprocessor, if its operands come in time."""
    cluster: int = 1
    """Blocks below each other that share their loads."""
    stages: int = 4
    resident: int = 1
    """The most blocks that the registers of a multiprocessor hold."""


class Plan(NamedTuple):
    """How a product is computed."""

    kernel: str
    """"wgmma", and "wgmma16" with more tiles (TMA, persistent blocks; parts in memory), "mma" (rows at any address;
    parts within a cluster), "stream" (few rows or columns; the same), "skinny" (few rows, TMA; divides k itself), or
    "short" (few products, any strides)."""
    tile: int
    """Index in TILES[kernel], and the number in the .cu; of "stream" the logarithm of warps, of "short"
    of threads that divide k, or a key of SHORT_GRIDS or SHORT_TILES."""
    parts: int


class Problem(NamedTuple):
    """What the choice depends on."""

    M: int
    N: int
    K: int
    a_copied: bool
    """Whether TMA cannot read a."""
    b_copied: bool
    multiprocessors: int
    a_across_k: bool = False
    """Whether a is contiguous along M."""


class Costs(NamedTuple):
    """Of an H200: microseconds, and bytes, elements or products in a microsecond."""

    memory: float = 5.73e6  # bytes read from the device's memory
    written: float = 3.06e6  # bytes written
    mma_launch: float = 2.91
    mma_block: float = 0.00125  # until the first step, and after the last one
    mma_rate: float = 1.93e6  # products of a multiprocessor
    mma_copy: float = 4.9e4  # elements that a multiprocessor copies to shared memory
    mma_shift: float = 2.29  # of a step's time more, for each operand at odd addresses
    mma_store: float = 8.85e03  # elements
    mma_l2: float = 7.15e6
    cluster: float = 0.27
    cluster_part: float = 0.0781
    cluster_sums: float = 1.3e6  # bytes that a multiprocessor reads from others
    stream_launch: float = 2.98
    stream_block: float = 0.00331
    stream_step: float = 1.46
    stream_shift: float = 0.498
    wgmma_launch: float = 1.59
    wgmma_block: float = 1.33
    wgmma_store: float = 2.05e-05  # of an element
    wgmma_l2: float = 7.67e6  # more than L2 delivers: neighbours read the same at the same time
    short_launch: float = 0.81
    short_turn: float = 0.811
    short_load: float = 0.00383  # of a warp
    short_store: float = 0.000652
    tile_launch: float = 2
    tile_term: float = 0.0371
    tile_store: float = 0.508
    skinny_launch: float = 2.9
    skinny_step: float = 0.212
    copy: float = 1.07
    add: float = 2.5
    store: float = 4.54e03  # elements of a multiprocessor that are not stored by TMA
    scattered: float = 3.05e6  # bytes of copies, and of parts


COSTS = Costs()
KERNELS = ("wgmma", "wgmma16", "mma", "stream", "skinny", "short")
TILES = {
    "mma": (
        Tile(32, 32, 128, 0.457, resident=8),
        Tile(64, 16, 128, 0.366, resident=8),
        Tile(64, 64, 64, 0.471, resident=7),
        Tile(128, 128, 64, 0.279, stages=3, resident=2),
        Tile(128, 32, 64, 0.51, resident=8),
        Tile(64, 128, 32, 0.63, stages=3, resident=4),
    ),
    "wgmma": (
        Tile(64, 128, 64, 0.181),
        Tile(128, 256, 64, 0.749, cluster=2),
        Tile(128, 128, 64, 0.354),
        Tile(128, 192, 64, 0.498, cluster=2),
    ),
    "wgmma16": (
        Tile(128, 256, 64, 0.88),
        Tile(128, 192, 64, 0.488),
        Tile(192, 128, 64, 0.534),
        Tile(64, 64, 64, 0.107),
        Tile(128, 128, 64, 0.439, cluster=2),
    ),
    "wgmma32": (
        Tile(64, 128, 32, 0.175),
        Tile(128, 256, 32, 0.63, cluster=2),
        Tile(128, 128, 32, 0.33),
        Tile(128, 192, 32, 0.48, cluster=2),
        Tile(192, 128, 32, 0.48),
        Tile(64, 64, 32, 0.11),
    ),
    "wgmma8": (
        Tile(64, 128, 128, 0.16),
        Tile(128, 256, 128, 0.83, cluster=2),
        Tile(128, 128, 128, 0.4),
        Tile(128, 192, 128, 0.6, cluster=2),
        Tile(192, 128, 128, 0.6),
        Tile(64, 64, 128, 0.11),
    ),
}
"""Those of 16 bits, of tf32 and of float8."""
_WGMMA_PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 44, 64, 96, 128)
PARTS = {
    "mma": (1, 2, 4, 8, 16),
    "stream": (1, 2, 4, 8, 16),
    "wgmma": _WGMMA_PARTS,
    "wgmma16": _WGMMA_PARTS,
}
SKINNY, SKINNY_M = Plan("skinny", 0, 1), 16
STREAM_FEW = 16
"""The most rows or columns."""
STREAM_WARPS, STREAM_STRIP, STREAM_TERMS = 8, 64, 32
"""Warps of a block; elements of the larger operand, and of k, that a warp has in flight."""
SHORT_LANES, SHORT_TERMS = 5, 8
"""The logarithm of the most threads that share a sum; terms that a thread has in flight."""
SHORT_GRIDS = {6: 4, 7: 8}
"""By tile: the rows and the columns of the grid of elements that a thread computes."""
SHORT_TILES, SHORT_TILE_TERMS = {8: 8, 9: 16}, 64
"""By tile: threads of a warp beside each other, of 4 rows and 4 columns each; the most terms."""
SHORT_PRODUCTS, SHORT_GRID_PRODUCTS = 2**26, 2**29
"""The most of a product for which "short" may be chosen."""
SHARED_BYTES = 227 * 1024  # of a multiprocessor


def count(size: int, by: int) -> int:
    return -(-size // by)


def blocks_of(tile: Tile, x: Problem) -> int:
    """Blocks of one part."""
    return count(x.M, tile.M * tile.cluster) * tile.cluster * count(x.N, tile.N)


def elements_of_parts(plan: Plan, M: int, N: int) -> int:
    """The sums that a plan of wgmma with several parts keeps in memory: those of whole tiles."""
    tile = TILES[plan.kernel][plan.tile]
    return plan.parts * blocks_of(tile, Problem(M, N, 0, False, False, 0)) * tile.M * tile.N


def stream_blocks(x: Problem, tile: int) -> int:
    return count(max(x.M, x.N), STREAM_STRIP * STREAM_WARPS >> tile)


def candidates(x: Problem) -> Iterator[Plan]:
    """All plans that may be the best one: parts that the device has blocks for, with at least one step of k each."""
    if min(x.M, x.N) <= STREAM_FEW:
        for index in range(4):
            blocks = stream_blocks(x, index)
            for parts in PARTS["stream"]:
                if 2**index * parts <= max(1, count(x.K, 16)) and (
                    parts == 1 or blocks * parts < 6 * x.multiprocessors
                ):
                    yield Plan("stream", index, parts)
    for kernel in ("mma", "wgmma", "wgmma16"):
        for index, tile in enumerate(TILES[kernel]):
            blocks, steps = blocks_of(tile, x), count(x.K, tile.K)
            for parts in PARTS[kernel]:
                if parts == 1 or (parts <= steps and blocks * parts < 3 * x.multiprocessors):
                    yield Plan(kernel, index, parts)
    if x.M * x.N * x.K <= SHORT_PRODUCTS:
        for index in range(SHORT_LANES + 1):
            if index == 0 or 2**index < 2 * x.K:
                yield Plan("short", index, 1)
    if x.M * x.N * x.K <= SHORT_GRID_PRODUCTS:
        for index in SHORT_GRIDS:
            yield Plan("short", index, 1)
        for index in SHORT_TILES if x.K <= SHORT_TILE_TERMS else ():
            yield Plan("short", index, 1)
    if x.M <= SKINNY_M and not x.b_copied:
        yield SKINNY


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan."""
    memory = 2 * (x.M * x.K + x.K * x.N) / COSTS.memory + 2 * x.M * x.N / COSTS.written
    if plan.kernel == "skinny":
        return _skinny_us(x, memory)
    if plan.kernel == "stream":
        return _stream_us(plan, x, memory)
    if plan.kernel == "short":
        return _short_us(plan, x, memory)
    tile = TILES[plan.kernel][plan.tile]
    if plan.kernel == "mma":
        return _mma_us(plan, tile, count(count(x.K, tile.K), plan.parts), blocks_of(tile, x) * plan.parts, memory, x)
    return _wgmma_us(plan, tile, memory, x)


def _mma_us(plan: Plan, tile: Tile, steps: int, blocks: int, memory: float, x: Problem) -> float:
    """Launch, and the longest of traffic, of rounds of resident blocks, and of a multiprocessor's work."""
    resident = min(
        tile.resident, SHARED_BYTES // (min(steps, tile.stages) * 9 * tile.K * (tile.M + tile.N) // 4 + 1024)
    )
    most = count(blocks, x.multiprocessors)  # blocks of a multiprocessor
    shifts = 1 + COSTS.mma_shift * (x.a_copied + x.b_copied)
    alone = count(most, resident) * (COSTS.mma_block + steps * tile.step_us * shifts)
    copies = (tile.M + tile.N) * tile.K / COSTS.mma_copy
    busy = most * (
        steps * (tile.M * tile.N * tile.K / COSTS.mma_rate + copies * shifts) + tile.M * tile.N / COSTS.mma_store
    )
    loaded = 2 * blocks * steps * tile.K * (tile.M + tile.N)
    joined = 4 * most * tile.M * tile.N / COSTS.cluster_sums if plan.parts > 1 else 0.0
    return COSTS.mma_launch + _cluster_us(plan) + joined + longest(alone, busy, memory, loaded / COSTS.mma_l2)


def _stream_us(plan: Plan, x: Problem, memory: float) -> float:
    """Launch, and the longer of reading memory and rounds of two blocks a multiprocessor."""
    rounds = count(stream_blocks(x, plan.tile) * plan.parts, 2 * x.multiprocessors)
    steps = count(x.K, STREAM_TERMS * plan.parts << plan.tile)
    shifts = 1 + COSTS.stream_shift * (x.a_copied if x.M > x.N else x.b_copied)
    busy = rounds * (COSTS.stream_block + steps * COSTS.stream_step * shifts)
    return COSTS.stream_launch + _cluster_us(plan) + longest(busy, memory * shifts)


def _short_us(plan: Plan, x: Problem, memory: float) -> float:
    """Launch, turns that wait for memory one after the other, and the loads of a multiprocessor's warps."""
    if plan.tile in SHORT_GRIDS:
        return _short_grid_us(SHORT_GRIDS[plan.tile], x, memory)
    if plan.tile in SHORT_TILES:
        return _short_tile_us(SHORT_TILES[plan.tile], x, memory)
    turns = count(x.K, SHORT_TERMS << plan.tile)
    warps = count(count(x.M * x.N << plan.tile, 32), x.multiprocessors)
    loads = 2 * warps * turns * SHORT_TERMS * COSTS.short_load
    return COSTS.short_launch + longest(turns * COSTS.short_turn, loads, memory)


def _short_grid_us(rows: int, x: Problem, memory: float) -> float:
    """The same of threads that compute `rows` rows and columns each."""
    beside = min(32, 2 ** (count(x.N, rows) - 1).bit_length())
    warps = count(count(x.N, rows * beside) * count(x.M, rows * 32 // beside), x.multiprocessors)
    turns = count(x.K, 16 // rows)
    loads = warps * (x.K * 2 * rows * COSTS.short_load + rows * rows * COSTS.short_store)
    return COSTS.short_launch + longest(turns * COSTS.short_turn, loads, memory)


def _short_tile_us(across: int, x: Problem, memory: float) -> float:
    """Launch, turns of loads, and the work of a multiprocessor's tiles."""
    rows, columns = 1024 // across, 4 * across
    tiles = count(count(x.M, rows) * count(x.N, columns), x.multiprocessors)
    turns = count((rows + columns) * x.K, 16 * 256)
    work = tiles * (x.K * COSTS.tile_term + COSTS.tile_store)
    return COSTS.tile_launch + turns * COSTS.short_turn + longest(work, memory)


def _cluster_us(plan: Plan) -> float:
    return COSTS.cluster + COSTS.cluster_part * plan.parts if plan.parts > 1 else 0.0


def _wgmma_us(plan: Plan, tile: Tile, memory: float, x: Problem) -> float:
    """Copies, launch, the longest of traffic and rounds, and the addition of parts."""
    blocks, steps = blocks_of(tile, x) * plan.parts, count(count(x.K, tile.K), plan.parts)
    rounds = count(blocks // tile.cluster, x.multiprocessors // tile.cluster)
    alone = min(steps, tile.stages)  # before a block's neighbour in the cluster loads for it
    loaded = 2 * blocks * tile.K * (steps * tile.M + (alone + (steps - alone) / tile.cluster) * tile.N)
    stored = tile.M * tile.N / COSTS.store if x.N % 8 != 0 else 0.0
    stored += tile.M * tile.N * COSTS.wgmma_store
    busy = rounds * (COSTS.wgmma_block + steps * tile.step_us + stored)
    us = COSTS.wgmma_launch + longest(busy, memory, loaded / COSTS.wgmma_l2)
    if x.a_copied or x.b_copied:
        us += COSTS.copy + 4 * (x.a_copied * x.M * x.K + x.b_copied * x.K * x.N) / COSTS.scattered
    if plan.parts > 1:
        us += COSTS.add + 8 * blocks * tile.M * tile.N / COSTS.scattered
    return us


def _skinny_us(x: Problem, memory: float) -> float:
    """As matmul_skinny.cu divides k: blocks of 128 columns, two on a multiprocessor. It needs a contiguous along k."""
    tiles, steps, cluster = count(x.N, 128), count(x.K, 64), 1
    while cluster < 8 and tiles * cluster < x.multiprocessors and steps >= 8 * cluster:
        cluster *= 2
    rounds = count(tiles * cluster, 2 * x.multiprocessors)
    joined = COSTS.cluster * (cluster > 1)
    copied = COSTS.copy + 4 * x.M * x.K / COSTS.scattered if x.a_copied or x.a_across_k else 0.0
    return COSTS.skinny_launch + copied + joined + longest(rounds * count(steps, cluster) * COSTS.skinny_step, memory)


def longest(*times: float) -> float:
    """The longest of concurrent activities, and some of the others, since they overlap imperfectly."""
    return sum(each**4 for each in times) ** 0.25


@lru_cache(maxsize=4096)
def best_of(x: Problem, kernels: tuple[str, ...], clusters: bool = True) -> Plan:
    """The plan of these kernels that is predicted to be the fastest, on a device with or without clusters."""
    plans = [each for each in candidates(x) if each.kernel in kernels and (clusters or each.parts == 1)]
    return min(plans, key=lambda each: predicted_us(each, x))


def best_plan(a: Tensor, b: Tensor, kernels: tuple[str, ...] = KERNELS) -> Plan:
    """The plan for two operands. On a CPU one that it can run, if it can run the first of these kernels."""
    if not a.is_cuda:
        return {"mma": Plan("mma", 0, 1), "stream": Plan("stream", 0, 1)}.get(kernels[0], Plan("wgmma", 0, 1))
    return best_of(problem_of(a, b), kernels, has_clusters(a.device))


@lru_cache
def has_clusters(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (9, 0)


def one_of_two_tiles(M: int, N: int, a: Tensor) -> Plan:
    """The plan of wgmma in types of other sizes than 16 bits: the smallest tile or the largest."""
    small, large = TILES["wgmma"][:2]
    processors = multiprocessors(a.device) if a.is_cuda else 1

    def waves(tile: Tile) -> int:
        return count(count(M, tile.M * tile.cluster) * count(N, tile.N), max(1, processors // tile.cluster))

    # A wave of the large tile has the work of four waves of the small one and takes as long as 16/7 of them.
    return Plan("wgmma", 1 if 16 * waves(large) <= 7 * waves(small) else 0, 1)


def problem_of(a: Tensor, b: Tensor) -> Problem:
    (M, K), N = a.shape, b.shape[1]
    layout = find_tma_layout(a, 1)
    across_k = layout is not None and layout[0]
    return Problem(M, N, K, layout is None, find_tma_layout(b, 0) is None, multiprocessors(a.device), across_k)


@lru_cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
