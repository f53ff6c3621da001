"""Plans of a matmul on Hopper (kernel, tile, parts of k), and the candidates for 16 bits."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cuda_ref.matmul._narrow_plan import TILE_ROWS, divide


@dataclass(frozen=True)
class Tile:
    """A tile of the output, and the terms of a step."""

    M: int
    N: int
    K: int
    cluster: int = 1
    """Blocks of a cluster that are one below the other and share their loads of b."""
    beside: int = 1
    """Columns of such blocks in a cluster. Blocks that are side by side share their loads of a."""
    stages: int = 4
    resident: int = 1
    """Most blocks that fit on a multiprocessor by their registers."""


class Plan(NamedTuple):
    """A kernel and its configuration."""

    kernel: str
    """One of KERNELS; "wgmma32" or "few32" in tf32; "wgmma8", "skinny8" or "short8" in float8."""
    tile: int
    """The configuration, as the .cu numbers it: an index in TILES[kernel], SKINNY_COLUMNS or TILE_ROWS (narrow); for
    "fitted" a `fitted_number`; the logarithm of the warps (stream) or threads (short) that divide k; or a key of
    SHORT_BLOCKS, SHORT_GRIDS or SHORT_TILES."""
    parts: int
    """Parts of k that different blocks sum."""


class Problem(NamedTuple):
    """All that the choice of a plan in 16 bits depends on, besides the device's rates."""

    M: int
    N: int
    K: int
    a_copied: bool
    """True if TMA cannot read a."""
    b_copied: bool
    multiprocessors: int
    a_across_k: bool = False
    """True if a is contiguous along M."""
    a_split: bool = False
    """True if rows of a, or of its copy, straddle lines of the L2 cache: 128 bytes of a row then lie in two lines."""
    b_split: bool = False
    a_dense: bool = False
    """True if rows of a follow each other without gaps, and begin at a multiple of 16 bytes."""
    b_along_k: bool = False
    """True if b is contiguous along K and is not a vector."""


KERNELS = ("wgmma", "wgmma16", "fitted", "mma", "stream", "skinny", "short", "narrow")
"""Kernels of 16 bits.

wgmma: TMA, persistent blocks, parts added through memory. wgmma16: the same with more tiles. fitted: the same with
tile heights fitted to the output. mma: rows at any address, parts added within a cluster. stream: the same for few
rows or columns. skinny: few rows by TMA, parts added within a cluster. short: small products, any strides. narrow: many
dense rows with few terms and few columns.
"""
WGMMA = ("wgmma", "wgmma16", "fitted", "wgmma32", "wgmma8")
"""The kernels of wgmma.py."""
TILES = {
    "mma": (Tile(32, 32, 128, resident=8), Tile(64, 16, 128, resident=8), Tile(128, 128, 64, stages=3, resident=2)),
    "wgmma": (
        Tile(64, 128, 64),
        Tile(128, 256, 64, cluster=2),
        Tile(128, 128, 64),
        Tile(128, 192, 64, cluster=2),
    ),
    "wgmma16": (
        Tile(128, 256, 64),
        Tile(128, 192, 64),
        Tile(192, 128, 64),
        Tile(64, 64, 64),
        Tile(128, 128, 64, cluster=2),
    ),
    "wgmma32": (
        Tile(64, 128, 32),
        Tile(128, 256, 32, cluster=2),
        Tile(128, 128, 32),
        Tile(128, 192, 32, cluster=2),
        Tile(192, 128, 32),
        Tile(64, 64, 32),
    ),
    "wgmma8": (
        Tile(64, 128, 128),
        Tile(128, 256, 128, cluster=2),
        Tile(128, 128, 128),
        Tile(128, 192, 128, cluster=2),
        Tile(192, 128, 128),
        Tile(64, 64, 128),
    ),
}
_WGMMA_PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 44, 64, 96, 128)
PARTS = {
    "mma": (1, 2, 4, 8, 16),
    "stream": (1, 2, 4, 8, 16),
    "wgmma": _WGMMA_PARTS,
    "wgmma16": _WGMMA_PARTS,
    "skinny": (1, 2, 3, 4, 5, 6, 8),
}
FITTED_ROWS = {64: 256, 128: 256, 192: 192}
"""Maps the columns of a "fitted" tile to its largest number of rows; rows are a multiple of 16."""
SHARE_A, SHARE_B = 1, 2
"""Bits of `sharing`: the operands whose loads the blocks of a "fitted" cluster share."""
SKINNY_COLUMNS, SKINNY_TERMS = (128, 64), 64
"""Columns of "skinny" tiles, and terms of a step."""
SKINNY_CLUSTERS = {1: 264, 2: 132, 3: 79, 4: 62, 5: 47, 6: 39, 8: 30}
"""Maps parts to the clusters of "skinny" that 132 multiprocessors of an H200 hold at once, with two blocks on each. A
cluster lies in one GPC, so some places stay empty."""
SKINNY_M = 32
"""Most rows for which "skinny" is a candidate."""
STREAM_FEW = 16
"""Most rows or columns of "stream"."""
STREAM_WARPS, STREAM_STRIP, STREAM_TERMS = 8, 64, 32
"""Warps of a "stream" block; elements of the larger operand, and terms, that a warp has in flight."""
SHORT_LANES, SHORT_TERMS = 5, 8
"""Logarithm of the most threads of a warp that share a "short" sum; terms that a thread has in flight."""
SHORT_BLOCKS = {10: 7, 11: 8, 12: 9, 13: 10}
"""Maps a tile to the logarithm of the threads of a block that share a sum."""
SHORT_GRIDS = {6: 4, 7: 8}
"""Maps a tile to the rows and columns of the grid of elements that a thread computes."""
SHORT_TILES, SHORT_TILE_TERMS = {8: 8, 9: 16}, 64
"""Maps a tile to the threads of a warp along a row, with 4 x 4 elements each; and the most terms of such tiles."""
SHORT_PRODUCTS, SHORT_GRID_PRODUCTS = 2**26, 2**29
"""Most multiplications for which "short", and its grids, are candidates."""


def cdiv(size: int, by: int) -> int:
    return -(-size // by)


def described(plan: Plan, **copied: bool) -> str:
    """Describes a plan: a word of the CUDA kernel's name, the configuration, then the operands that are copied."""
    kernel, tile, parts = plan
    if kernel in (*WGMMA, "mma"):
        sizes = tile_of(plan)
        cluster = sizes.cluster * sizes.beside
        text = f"{kernel.rstrip('0123456789')} {sizes.M}x{sizes.N}{f' cluster={cluster}' if cluster > 1 else ''}"
    elif kernel == "narrow":
        text = f"narrow rows={TILE_ROWS[tile]}"
    elif kernel in ("skinny", "skinny8"):
        text = f"skinny columns={SKINNY_COLUMNS[tile]}"
    elif kernel == "stream":
        text = f"stream warps={2**tile}"
    elif kernel == "short":
        grid, across = SHORT_GRIDS.get(tile), SHORT_TILES.get(tile)
        shape = f"grid={grid}x{grid}" if grid else f"tile={1024 // across}x{4 * across}" if across else None
        text = f"short {shape or f'threads={2 ** SHORT_BLOCKS.get(tile, tile)}'}"
    else:
        text = kernel
    names = " and ".join(name for name, is_copied in copied.items() if is_copied)
    return f"{text}{f' parts={parts}' if parts > 1 else ''}{f' ({names} copied)' if names else ''}"


def fitted_number(rows: int, columns: int, sharing: int) -> int:
    return rows * 16 + sharing * 4 + columns // 64


@lru_cache(maxsize=256)
def fitted_tile(number: int) -> Tile:
    """The tile of a plan of "fitted"."""
    rows, columns, sharing = number // 16, number % 4 * 64, number // 4 % 4
    return Tile(rows, columns, 64, cluster=1 + bool(sharing & SHARE_B), beside=1 + bool(sharing & SHARE_A))


def tile_of(plan: Plan) -> Tile:
    return fitted_tile(plan.tile) if plan.kernel == "fitted" else TILES[plan.kernel][plan.tile]


def blocks_of(tile: Tile, x: Problem) -> int:
    """Number of blocks that compute one part."""
    return cdiv(x.M, tile.M * tile.cluster) * cdiv(x.N, tile.N * tile.beside) * tile.cluster * tile.beside


def elements_of_parts(plan: Plan, M: int, N: int) -> int:
    """Sums that a WGMMA plan with several parts keeps in memory: of whole tiles, or in "fitted" of the output alone."""
    if plan.kernel == "fitted":
        return plan.parts * M * N
    tile = TILES[plan.kernel][plan.tile]
    return plan.parts * blocks_of(tile, Problem(M, N, 0, False, False, 0)) * tile.M * tile.N


def stream_blocks(x: Problem, tile: int) -> int:
    return cdiv(max(x.M, x.N), STREAM_STRIP * STREAM_WARPS >> tile)


def candidates(x: Problem) -> Iterator[Plan]:
    """The plans in 16 bits that may be the fastest: parts that the device has blocks for, with at least one step
    each."""
    if min(x.M, x.N) <= STREAM_FEW:
        for index in range(4):
            blocks = stream_blocks(x, index)
            for parts in PARTS["stream"]:
                if 2**index * parts <= max(1, cdiv(x.K, 16)) and (parts == 1 or blocks * parts < 6 * x.multiprocessors):
                    yield Plan("stream", index, parts)
    for kernel in ("mma", "wgmma", "wgmma16"):
        for index, tile in enumerate(TILES[kernel]):
            blocks, steps = blocks_of(tile, x), cdiv(x.K, tile.K)
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
            if parts <= cdiv(x.K, SKINNY_TERMS) and (parts == 1 or cdiv(x.N, columns) * parts < 6 * x.multiprocessors):
                yield Plan("skinny", index, parts)
    for index in range(len(TILE_ROWS)) if x.a_dense else ():
        if divide(x.M, x.N, x.K, index, x.multiprocessors) is not None:
            yield Plan("narrow", index, 1)


def _fitted(x: Problem) -> Iterator[Plan]:
    """For each number of tile rows, the lowest tile that covers M, and parts of k that fill the device."""
    for (columns, most), sharing in itertools.product(FITTED_ROWS.items(), range(4)):
        last = 0
        for rows in range(16, most + 1, 16):
            tile = fitted_number(rows, columns, sharing)
            blocks = blocks_of(fitted_tile(tile), x)
            if blocks == last:
                continue
            last = blocks
            for parts in _WGMMA_PARTS:
                if parts == 1 or (parts <= cdiv(x.K, 64) and blocks * parts < 3 * x.multiprocessors):
                    yield Plan("fitted", tile, parts)
