"""Tile configurations of pallas.py, and which one a problem gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from jax.experimental import pallas as pl

WGMMA_M = 64
"""Rows of a tile per consumer: the M of one wgmma."""


@dataclass(frozen=True)
class TileConfig:
    """How a matrix product is tiled.

    A block computes tiles of c, (consumers * WGMMA_M, block_n). The blocks of a cluster compute adjacent tiles and
    multicast their operands. Cluster tiles are visited in groups of `grid_tile_width` columns, down one group and up
    the next.
    """

    block_n: int
    num_stages: int
    """Steps of K in flight."""
    cluster: tuple[int, int]
    """Rows and columns of blocks."""
    grid_tile_width: int
    splits: int = 1
    """Parts of K, none of them empty, whose sums are added afterwards in their order."""
    consumers: int = 2
    """Warpgroups per block that multiply."""

    @property
    def cluster_tile(self) -> tuple[int, int]:
        """Rows and columns of c that a cluster computes at a time."""
        return self.consumers * WGMMA_M * self.cluster[0], self.block_n * self.cluster[1]


@dataclass(frozen=True)
class ElementsConfig:
    """A program computes a tile of c, (block_m, block_n), of one of `splits` parts of K, `block_k` of it at a time."""

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


CLOCK = 1700.0  # cycles in a microsecond
DEVICE_BYTES, COPY_BYTES = 3.9e6, 3.1e6  # read or written in a microsecond; by a copy or an addition of XLA's
KERNEL_US = 1.3  # of a copy or an addition besides its traffic

ROW_BYTES = 128  # of a tile of a: the elements of K in a step
LATENCY = 2500.0  # cycles until a load arrives
COLUMN_STEP = 3.95  # cycles of a step of K for each column of a tile, of which it has NARROW more than its own
NARROW = 24
L2_BYTES = 50.0  # that a multiprocessor gets from the L2 cache in a cycle
TILE, COLUMN = 770.0, 8.0  # cycles of a tile besides its steps, and of each of its columns; twice for sums of parts
BEYOND = 0.5  # time of a row of a tile that lies beyond M, in that of a row from memory

ELEMENTS = ((16, 16, 128), (16, 64, 64), (64, 16, 64), (32, 32, 64), (64, 64, 32), (128, 64, 64), (128, 128, 64))
PROGRAMS, PROGRAM_SUMS = 4, 128 * 128 * 2  # on a multiprocessor at a time, and their sums
START, PROGRAM, STORE = 1700.0, 450.0, 0.04  # cycles of a kernel, of a program, and of each of its results
WAIT, ELEMENT_WAIT, ELEMENTS_PER_CYCLE = 750.0, 0.025, 18.0  # cycles of a step, of its elements; those of all programs
FLOAT32 = 6.7  # times as long takes an element of tf32, which is converted: 241 us for 2048 x 2048 x 2048
NARROW_ROWS, NARROW_N = 0.2, 64  # time that rows of b of a tile take besides, for each time that NARROW_N is longer
ODD, UNALIGNED = 4.4, 2.6  # times as long takes an element of rows that begin at any element, or not at 16 bytes

Config = TileConfig | ElementsConfig


def choose_config(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> Config:
    """The configuration that is predicted to be the fastest."""
    times: dict[Config, float] = {
        config: tiles_us(M, N, K, itemsize, config, max_blocks) for config in tiles_plans(M, N, K, itemsize, max_blocks)
    }
    if M * K + K * N + M * N < 2**31:
        times |= {config: elements_us(M, N, K, itemsize, config, max_blocks) for config in elements_plans(K)}
    return min(times, key=times.__getitem__)


def tiles_plans(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> Iterator[TileConfig]:
    """Every configuration; K is divided where the tiles leave most of the device idle."""
    steps = pl.cdiv(K, ROW_BYTES // itemsize)
    for config in CONFIGS:
        blocks = tile_count(M, N, config) * math.prod(config.cluster)
        most = min(64, steps // 4, 8 * max_blocks // blocks)
        for splits in sorted({pl.cdiv(steps, pl.cdiv(steps, splits)) for splits in range(1, max(most, 1) + 1)}):
            yield replace(config, splits=splits)


def tiles_us(M: int, N: int, K: int, itemsize: int, config: TileConfig, max_blocks: int) -> float:
    """Time of the kernel, by its products, by the L2 cache or by memory, and of the copies before and after it."""
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
    """Time of a kernel of XLA's that reads and writes so many bytes."""
    return KERNEL_US + traffic / COPY_BYTES if traffic else 0.0


def elements_plans(K: int) -> Iterator[ElementsConfig]:
    """Tiles for products whose copies would take longer."""
    for block_m, block_n, block_k in ELEMENTS:
        block_k = min(block_k, max(16, pl.next_power_of_2(K)))
        for splits in (1, 2, 4, 8, 16, 32):
            if splits == 1 or splits * 2 * block_k <= K:
                yield ElementsConfig(block_m, block_n, block_k, splits)


def elements_us(M: int, N: int, K: int, itemsize: int, config: ElementsConfig, max_blocks: int) -> float:
    """Rounds of programs on a multiprocessor, each step of which waits for memory or for the loads of the others."""
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
    """Cluster tiles that the busiest cluster computes, with as many clusters as `max_blocks` allows."""
    return pl.cdiv(config.splits * tile_count(M, N, config), max_blocks // math.prod(config.cluster))


def cluster_count(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Fewest clusters with the same number of waves: idle multiprocessors save power."""
    return pl.cdiv(config.splits * tile_count(M, N, config), waves(M, N, config, max_blocks))
