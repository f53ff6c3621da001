"""Tile configurations of pallas.py and elements.py, and a model of their times that chooses one for a problem."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from jax.experimental import pallas as pl

WGMMA_M = 64
"""Rows of a tile per consumer: the M of one wgmma."""


@dataclass(frozen=True)
class TileConfig:
    """The tiling of a matrix product.

    A block computes tiles of c, (consumers * WGMMA_M, block_n). The blocks of a cluster compute adjacent tiles and
    multicast their operands. Cluster tiles are visited in groups of `grid_tile_width` columns, down one group and up
    the next.
    """

    block_n: int
    num_stages: int
    """Steps of K whose loads are in flight."""
    cluster: tuple[int, int]
    """Blocks of a cluster along rows and columns."""
    grid_tile_width: int
    splits: int = 1
    """Parts of K, none of them empty. Their sums are added in order."""
    consumers: int = 2
    """Warpgroups per block that multiply."""

    @property
    def cluster_tile(self) -> tuple[int, int]:
        """Rows and columns of c that a cluster computes at a time."""
        return self.consumers * WGMMA_M * self.cluster[0], self.block_n * self.cluster[1]


@dataclass(frozen=True)
class ElementsConfig:
    """A program computes a tile of c, (block_m, block_n), for one of `splits` parts of K, in steps of block_k."""

    block_m: int
    block_n: int
    block_k: int
    splits: int = 1

    @property
    def num_warps(self) -> int:
        return 4 if self.block_m * self.block_n <= 128 * 64 else 8


CONFIGS = (
    TileConfig(block_n=256, num_stages=4, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=192, num_stages=4, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=128, num_stages=6, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=64, num_stages=8, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=256, num_stages=4, cluster=(1, 1), grid_tile_width=8),
    TileConfig(block_n=192, num_stages=4, cluster=(1, 1), grid_tile_width=8),
    TileConfig(block_n=128, num_stages=6, cluster=(1, 1), grid_tile_width=8),
    TileConfig(block_n=64, num_stages=8, cluster=(1, 1), grid_tile_width=8),
    TileConfig(block_n=256, num_stages=5, cluster=(1, 1), grid_tile_width=8, consumers=1),
    TileConfig(block_n=128, num_stages=8, cluster=(1, 1), grid_tile_width=8, consumers=1),
    TileConfig(block_n=64, num_stages=12, cluster=(1, 1), grid_tile_width=8, consumers=1),
)


CLOCK = 1700.0  # cycles per microsecond
DEVICE_BYTES, COPY_BYTES = 3.9e6, 3.1e6  # memory traffic per microsecond: of the kernel; of XLA's copies and additions
KERNEL_US = 1.3  # launch of a copy or an addition

ROW_BYTES = 128  # bytes of K per step
LATENCY = 2500.0  # cycles until a load arrives
COLUMN_STEP = 3.95  # cycles per step of K and column of a tile
NARROW = 24  # columns added to block_n in the predicted time of a step
L2_BYTES = 50.0  # bytes per cycle from the L2 cache to a multiprocessor
TILE, COLUMN = 770.0, 8.0  # cycles per tile and per column, besides the steps; columns count twice if K is divided
BEYOND = 0.5  # time of a row beyond M relative to a row of the matrix

ELEMENTS = ((16, 16, 128), (16, 64, 64), (64, 16, 64), (32, 32, 64), (64, 64, 32), (128, 64, 64), (128, 128, 64))
PROGRAMS, PROGRAM_SUMS = 4, 128 * 128 * 2  # most programs per multiprocessor, and most float32 sums of all of them
START, PROGRAM, STORE = 1700.0, 450.0, 0.04  # cycles per kernel, per program, and per element of c
WAIT, ELEMENT_WAIT = 750.0, 0.025  # cycles per step, and per element of a step, while a program waits for memory
ELEMENTS_PER_CYCLE = 18.0  # rate of the loads of all programs of a multiprocessor
FLOAT32 = 6.7  # time of a tf32 element, which is converted, relative to 16 bits
NARROW_ROWS, NARROW_N = 0.2, 64  # extra traffic of b in narrow tiles: the share NARROW_ROWS * (NARROW_N / block_n - 1)
ODD, UNALIGNED = 4.4, 2.6  # relative time of an element if rows have an odd length; if no multiple of 16 bytes

Config = TileConfig | ElementsConfig


def choose_config(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> Config:
    """The configuration with the shortest predicted time."""
    tiles = choose_tiles(M, N, K, itemsize, max_blocks)
    if not elements_fit(M, N, K):
        return tiles
    elements = choose_elements(M, N, K, itemsize, max_blocks)
    by_tiles = tiles_us(M, N, K, itemsize, tiles, max_blocks)
    return tiles if by_tiles <= elements_us(M, N, K, itemsize, elements, max_blocks) else elements


def choose_tiles(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> TileConfig:
    """The configuration of pallas.py with the shortest predicted time."""
    plans = tiles_plans(M, N, K, itemsize, max_blocks)
    return min(plans, key=lambda config: tiles_us(M, N, K, itemsize, config, max_blocks))


def choose_elements(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> ElementsConfig:
    """The configuration of elements.py with the shortest predicted time."""
    return min(elements_plans(K), key=lambda config: elements_us(M, N, K, itemsize, config, max_blocks))


def elements_fit(M: int, N: int, K: int) -> bool:
    """True if the 32-bit offsets of elements.py reach all elements."""
    return M * K + K * N + M * N < 2**31


def tiles_plans(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> Iterator[TileConfig]:
    """All configurations. K is divided if the tiles leave most of the device idle."""
    steps = pl.cdiv(K, ROW_BYTES // itemsize)
    for config in CONFIGS:
        blocks = tile_count(M, N, config) * math.prod(config.cluster)
        most = min(64, steps // 4, 8 * max_blocks // blocks)
        for splits in sorted({pl.cdiv(steps, pl.cdiv(steps, splits)) for splits in range(1, max(most, 1) + 1)}):
            yield replace(config, splits=splits)


def tiles_us(M: int, N: int, K: int, itemsize: int, config: TileConfig, max_blocks: int) -> float:
    """Time of the kernel, limited by products, L2 cache or memory, and of the copies around it."""
    block_k = ROW_BYTES // itemsize
    rows, columns = config.cluster
    loaded = ROW_BYTES * (config.consumers * WGMMA_M / columns + config.block_n / rows)
    step = max(COLUMN_STEP * (config.block_n + NARROW) * config.consumers / 2, loaded / L2_BYTES)
    steps = pl.cdiv(pl.cdiv(K, block_k), config.splits)
    tile = TILE + COLUMN * config.block_n * (2 if config.splits > 1 else 1)
    cycles = LATENCY + waves(M, N, config, max_blocks) * (steps * step + tile)
    sums = config.splits * M * N * 4 if config.splits > 1 else 0
    beyond = BEYOND * (-M % config.cluster_tile[0]) * pl.cdiv(N, config.cluster_tile[1])
    traffic = (M * K + K * N + M * N + beyond * K) * itemsize + sums
    copied = (
        2 * M * K * itemsize if M % 8 or K % block_k else 0,
        2 * K * N * itemsize if K % block_k or N % 64 or itemsize == 4 else 0,
        sums if sums or not (M % 8 or N % 64) else 2 * M * N * itemsize,
    )
    return max(cycles / CLOCK, traffic / DEVICE_BYTES) + sum(map(copy_us, copied))


def copy_us(traffic: int) -> float:
    """Time of an XLA kernel that reads and writes `traffic` bytes in total."""
    return KERNEL_US + traffic / COPY_BYTES if traffic else 0.0


def elements_plans(K: int) -> Iterator[ElementsConfig]:
    """All configurations of elements.py."""
    for block_m, block_n, block_k in ELEMENTS:
        block_k = min(block_k, max(16, pl.next_power_of_2(K)))
        for splits in (1, 2, 4, 8, 16, 32):
            if splits == 1 or splits * 2 * block_k <= K:
                yield ElementsConfig(block_m, block_n, block_k, splits)


def elements_us(M: int, N: int, K: int, itemsize: int, config: ElementsConfig, max_blocks: int) -> float:
    """Time of the waves of programs on a multiprocessor. A step waits for memory or for loads of other programs."""
    programs = pl.cdiv(M, config.block_m) * pl.cdiv(N, config.block_n) * config.splits
    tile = config.block_m * config.block_n
    resident = min(PROGRAMS, PROGRAM_SUMS // tile, pl.cdiv(programs, max_blocks))
    a_element, b_element = (ODD if size % 2 else UNALIGNED if size * itemsize % 16 else 1.0 for size in (K, N))
    elements = (config.block_m * a_element + config.block_n * b_element) * config.block_k
    each = (FLOAT32 if itemsize == 4 else 1.0) / ELEMENTS_PER_CYCLE
    step = max(WAIT + ELEMENT_WAIT * elements, resident * elements * each)
    steps = pl.cdiv(pl.cdiv(K, config.block_k), config.splits)
    store = STORE * resident * tile * (2 if config.splits == 1 and N * itemsize % 16 else 1)
    cycles = START + pl.cdiv(programs, max_blocks * resident) * (steps * step + PROGRAM + store)
    sums = config.splits * M * N * 4 if config.splits > 1 else 0
    b_time = 1 + NARROW_ROWS * max(0.0, NARROW_N / config.block_n - 1)
    traffic = (M * K + K * N * b_time + M * N) * itemsize + sums
    return max(cycles / CLOCK, traffic / DEVICE_BYTES) + copy_us(sums)


def tile_count(M: int, N: int, config: TileConfig) -> int:
    """Cluster tiles that cover an M x N matrix."""
    return pl.cdiv(M, config.cluster_tile[0]) * pl.cdiv(N, config.cluster_tile[1])


def waves(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Cluster tiles of the busiest cluster, with as many clusters as `max_blocks` allows."""
    return pl.cdiv(config.splits * tile_count(M, N, config), max_blocks // math.prod(config.cluster))


def cluster_count(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Fewest clusters with the same number of waves: idle multiprocessors save power."""
    return pl.cdiv(config.splits * tile_count(M, N, config), waves(M, N, config, max_blocks))
