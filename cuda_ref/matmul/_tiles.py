"""The plans of a matmul in 16 bits on Hopper: kernels, tiles, and parts in which k is divided."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cuda_ref.matmul._narrow_plan import TILE_ROWS, divide


@dataclass(frozen=True)
class Tile:
    """A tile of the output, K terms of the sum a step."""

    M: int
    N: int
    K: int
    step_us: float = 0
    """Of a block alone on its multiprocessor, if its operands come in time. `_times.py` has that of "fitted"."""
    cluster: int = 1
    """Blocks below each other, which share their loads of b."""
    beside: int = 1
    """Clusters of such blocks beside each other, which share their loads of a."""
    stages: int = 4
    resident: int = 1
    """The most blocks that the registers of a multiprocessor hold."""


class Plan(NamedTuple):
    """How a product is computed."""

    kernel: str
    """"wgmma", and "wgmma16" with more tiles (TMA, persistent blocks; parts in memory), "fitted" (the same with rows of
    tiles that fit the output), "mma" (rows at any address; parts within a cluster), "stream" (few rows or columns; the
    same), "skinny" (few rows, TMA; parts within a cluster), "short" (few products, any strides), or
    "narrow" (many dense rows of few terms, few columns)."""
    tile: int
    """Index in TILES[kernel], and the number in the .cu; of "fitted" what fitted_number gives; of "stream" the
    logarithm of warps, of "short" of threads that divide k, or a key of SHORT_BLOCKS, SHORT_GRIDS or SHORT_TILES; of
    "narrow" an index of TILE_ROWS, of "skinny" of SKINNY_COLUMNS."""
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
    a_split: bool = False
    """Whether rows of a, or of its copy, begin within lines of the L2 cache: each 128 bytes are then of two lines."""
    b_split: bool = False
    a_dense: bool = False
    """Whether rows of a follow each other without gaps, and begin at a multiple of 16 bytes."""
    b_along_k: bool = False
    """Whether b is contiguous along K, and no vector."""


KERNELS = ("wgmma", "wgmma16", "fitted", "mma", "stream", "skinny", "short", "narrow")
TILES = {
    "mma": (
        Tile(32, 32, 128, 0.158, resident=8),
        Tile(64, 16, 128, 0.4213, resident=8),
        Tile(128, 128, 64, 0.7564, stages=3, resident=2),
    ),
    "wgmma": (
        Tile(64, 128, 64, 0.1377),
        Tile(128, 256, 64, 0.5383, cluster=2),
        Tile(128, 128, 64, 0.2706),
        Tile(128, 192, 64, 0.42, cluster=2),
    ),
    "wgmma16": (
        Tile(128, 256, 64, 0.5751),
        Tile(128, 192, 64, 0.4542),
        Tile(192, 128, 64, 0.4201),
        Tile(64, 64, 64, 0.1123),
        Tile(128, 128, 64, 0.3011, cluster=2),
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
        Tile(64, 128, 128, 0.216),
        Tile(128, 256, 128, 0.6399, cluster=2),
        Tile(128, 128, 128, 0.3817),
        Tile(128, 192, 128, 0.4974, cluster=2),
        Tile(192, 128, 128, 0.6),
        Tile(64, 64, 128, 0.1527),
    ),
}
"""Those of 16 bits, of tf32 and of float8."""
_WGMMA_PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 44, 64, 96, 128)
PARTS = {
    "mma": (1, 2, 4, 8, 16),
    "stream": (1, 2, 4, 8, 16),
    "wgmma": _WGMMA_PARTS,
    "wgmma16": _WGMMA_PARTS,
    "skinny": (1, 2, 3, 4, 5, 6, 8),
}
FITTED_ROWS = {64: 256, 128: 256, 192: 192}
"""Columns of a tile of "fitted", and the most rows; they are a multiple of 16."""
SHARE_A, SHARE_B = 1, 2
"""What blocks of "fitted" share."""
SKINNY_COLUMNS, SKINNY_TERMS = (128, 64), 64
"""Of a tile, and the terms of a step."""
SKINNY_M = 32
"""The most rows of a product for which "skinny" may be chosen."""
STREAM_FEW = 16
"""The most rows or columns."""
STREAM_WARPS, STREAM_STRIP, STREAM_TERMS = 8, 64, 32
"""Warps of a block; elements of the larger operand, and of k, that a warp has in flight."""
SHORT_LANES, SHORT_TERMS = 5, 8
"""The logarithm of the most threads of a warp that share a sum; terms that a thread has in flight."""
SHORT_BLOCKS = {10: 7, 11: 8, 12: 9, 13: 10}
"""By tile: the logarithm of the threads of a block that share a sum."""
SHORT_GRIDS = {6: 4, 7: 8}
"""By tile: the rows and the columns of the grid of elements that a thread computes."""
SHORT_TILES, SHORT_TILE_TERMS = {8: 8, 9: 16}, 64
"""By tile: threads of a warp beside each other, of 4 rows and 4 columns each; the most terms."""
SHORT_PRODUCTS, SHORT_GRID_PRODUCTS = 2**26, 2**29
"""The most of a product for which "short" may be chosen."""


def count(size: int, by: int) -> int:
    return -(-size // by)


def fitted_number(rows: int, columns: int, sharing: int) -> int:
    return rows * 16 + sharing * 4 + columns // 64


@lru_cache(maxsize=256)
def fitted_tile(number: int) -> Tile:
    """The tile that a plan of "fitted" names."""
    rows, columns, sharing = number // 16, number % 4 * 64, number // 4 % 4
    return Tile(rows, columns, 64, cluster=1 + bool(sharing & SHARE_B), beside=1 + bool(sharing & SHARE_A))


def tile_of(plan: Plan) -> Tile:
    return fitted_tile(plan.tile) if plan.kernel == "fitted" else TILES[plan.kernel][plan.tile]


def blocks_of(tile: Tile, x: Problem) -> int:
    """Blocks of one part."""
    return count(x.M, tile.M * tile.cluster) * count(x.N, tile.N * tile.beside) * tile.cluster * tile.beside


def elements_of_parts(plan: Plan, M: int, N: int) -> int:
    """The sums that a plan of wgmma with several parts keeps in memory: those of whole tiles, but for "fitted"."""
    if plan.kernel == "fitted":
        return plan.parts * M * N
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
    if x.N % 8 == 0:
        yield from _fitted(x)
    if x.M * x.N * x.K <= SHORT_PRODUCTS:
        for index in (*range(SHORT_LANES + 1), *SHORT_BLOCKS):
            if index == 0 or 2 ** SHORT_BLOCKS.get(index, index) < 2 * x.K:
                yield Plan("short", index, 1)
    if x.M * x.N * x.K <= SHORT_GRID_PRODUCTS:
        for index in SHORT_GRIDS:
            yield Plan("short", index, 1)
        for index in SHORT_TILES if x.K <= SHORT_TILE_TERMS else ():
            yield Plan("short", index, 1)
    for index, columns in enumerate(SKINNY_COLUMNS) if x.M <= SKINNY_M and not x.b_copied else ():
        for parts in PARTS["skinny"]:
            if parts <= count(x.K, SKINNY_TERMS) and (
                parts == 1 or count(x.N, columns) * parts < 6 * x.multiprocessors
            ):
                yield Plan("skinny", index, parts)
    for index in range(len(TILE_ROWS)) if x.a_dense else ():
        if divide(x.M, x.N, x.K, index, x.multiprocessors) is not None:
            yield Plan("narrow", index, 1)


def _fitted(x: Problem) -> Iterator[Plan]:
    """For each number of tiles below each other the least rows, and parts of k that fill the device."""
    for (columns, most), sharing in itertools.product(FITTED_ROWS.items(), range(4)):
        last = 0
        for rows in range(16, most + 1, 16):
            tile = fitted_number(rows, columns, sharing)
            blocks = blocks_of(fitted_tile(tile), x)
            if blocks == last:
                continue
            last = blocks
            for parts in _WGMMA_PARTS:
                if parts == 1 or (parts <= count(x.K, 64) and blocks * parts < 3 * x.multiprocessors):
                    yield Plan("fitted", tile, parts)
