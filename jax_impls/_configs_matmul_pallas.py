"""Tile configurations of matmul_pallas.py, and which one a problem gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from jax.experimental import pallas as pl

CONSUMERS = 2
"""Warpgroups per block that multiply."""
WGMMA_M = 64
"""Rows of a tile per consumer: the M of one wgmma."""


@dataclass(frozen=True)
class TileConfig:
    """How a matrix product is tiled.

    A block computes tiles of c, (CONSUMERS * WGMMA_M, block_n). The blocks of a cluster compute adjacent tiles and
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

    @property
    def cluster_tile(self) -> tuple[int, int]:
        """Rows and columns of c that a cluster computes at a time."""
        return CONSUMERS * WGMMA_M * self.cluster[0], self.block_n * self.cluster[1]


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
)


CLOCK = 1700.0  # cycles in a microsecond
LATENCY = 2000.0  # cycles until a load arrives
COLUMN_STEP = 4.0  # cycles of a step of K for each column of a tile, of which it has NARROW more than its own
NARROW = 32
TILE = 1500.0  # cycles of a tile besides its steps
ROW_BYTES = 128  # of an operand's tile: the elements of K in a step
L2_BYTES = 48.0  # that a multiprocessor gets from the L2 cache in a cycle
DEVICE_BYTES = 4.0e6  # read or written in a microsecond
ELEMENTS = ((16, 16, 128), (16, 64, 64), (64, 16, 64), (32, 32, 64), (64, 64, 32), (128, 64, 64), (128, 128, 64))
PROGRAMS, PROGRAM_SUMS = 4, 128 * 128 * 2  # of elements on a multiprocessor at a time, and their sums
ELEMENTS_STEP, ELEMENTS_PER_CYCLE = 700.0, 16.0  # cycles of a step that waits, elements that are loaded in a cycle
UNALIGNED = 2.0  # times as long takes an element of rows that do not begin at multiples of 16 bytes
KERNEL_US = 2.5  # of a copy or an addition besides its traffic

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
    loaded = ROW_BYTES * (min(M, CONSUMERS * WGMMA_M) / columns + config.block_n / rows)
    step = max(COLUMN_STEP * (config.block_n + NARROW), loaded / L2_BYTES)
    steps = pl.cdiv(pl.cdiv(K, block_k), config.splits)
    cycles = LATENCY + waves(M, N, config, max_blocks) * (steps * step + TILE)
    sums = config.splits * M * N * 4 if config.splits > 1 else 0
    copied = (
        2 * M * K * itemsize if M % 8 or K % block_k else 0,
        2 * K * N * itemsize if K % block_k or N % 64 or itemsize == 4 else 0,
        sums if sums or not (M % 8 or N % 64) else 2 * M * N * itemsize,
    )
    copies = sum(KERNEL_US + each / DEVICE_BYTES for each in copied if each)
    return max(cycles / CLOCK, ((M * K + K * N + M * N) * itemsize + sums) / DEVICE_BYTES) + copies


def elements_plans(K: int) -> Iterator[ElementsConfig]:
    """Tiles for products whose copies would take longer."""
    for block_m, block_n, block_k in ELEMENTS:
        block_k = min(block_k, max(16, pl.next_power_of_2(K)))
        for splits in (1, 2, 4, 8, 16, 32):
            if splits == 1 or splits * 2 * block_k <= K:
                yield ElementsConfig(block_m, block_n, block_k, splits)


def elements_us(M: int, N: int, K: int, itemsize: int, config: ElementsConfig, max_blocks: int) -> float:
    """Rounds of programs on a multiprocessor, each step of which waits for memory or issues a load for each element."""
    programs = pl.cdiv(M, config.block_m) * pl.cdiv(N, config.block_n) * config.splits
    most = min(PROGRAMS, PROGRAM_SUMS // (config.block_m * config.block_n))
    resident = min(most, pl.cdiv(programs, max_blocks))
    a_element, b_element = (UNALIGNED if size * itemsize % 16 else 1.0 for size in (K, N))
    elements = (config.block_m * a_element + config.block_n * b_element) * config.block_k
    step = max(ELEMENTS_STEP, resident * elements / ELEMENTS_PER_CYCLE)
    steps = pl.cdiv(pl.cdiv(K, config.block_k), config.splits)
    cycles = LATENCY + pl.cdiv(programs, max_blocks * resident) * (steps * step + TILE)
    sums = config.splits * M * N * 4 if config.splits > 1 else 0
    traffic = (M * K + K * N + M * N) * itemsize + sums
    added = KERNEL_US + sums / DEVICE_BYTES if sums else 0.0
    return max(cycles / CLOCK, traffic / DEVICE_BYTES) + added


def tile_count(M: int, N: int, config: TileConfig) -> int:
    """Cluster tiles that cover an M x N matrix."""
    return pl.cdiv(M, config.cluster_tile[0]) * pl.cdiv(N, config.cluster_tile[1])


def waves(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Cluster tiles that the busiest cluster computes, with as many clusters as `max_blocks` allows."""
    return pl.cdiv(config.splits * tile_count(M, N, config), max_blocks // math.prod(config.cluster))


def cluster_count(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Fewest clusters with the same number of waves: idle multiprocessors save power."""
    return pl.cdiv(config.splits * tile_count(M, N, config), waves(M, N, config, max_blocks))
