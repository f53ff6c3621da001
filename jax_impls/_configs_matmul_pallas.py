"""Tile configurations of matmul_pallas.py, and which one a problem gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

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


CONFIGS = (
    TileConfig(block_n=256, num_stages=4, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=192, num_stages=4, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=128, num_stages=6, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=64, num_stages=8, cluster=(2, 1), grid_tile_width=8),
)


CLOCK = 1700.0  # cycles in a microsecond
LATENCY = 2000.0  # cycles until a load arrives
COLUMN_STEP = 4.0  # cycles of a step of K for each column of a tile, of which it has NARROW more than its own
NARROW = 32
TILE = 1500.0  # cycles of a tile besides its steps
DEVICE_BYTES = 4.0e6  # read or written in a microsecond
PROGRAMS = 4  # of elements on a multiprocessor at a time
ELEMENTS_STEP, ELEMENTS_PER_CYCLE = 700.0, 16.0  # cycles of a step that waits, elements that are loaded in a cycle
KERNEL_US = 2.5  # of a copy or an addition besides its traffic

Config = TileConfig | ElementsConfig


def choose_config(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> Config:
    """The configuration that is predicted to be the fastest."""
    tiles = choose_tiles(M, N, max_blocks)
    times: dict[Config, float] = {tiles: tiles_us(M, N, K, itemsize, tiles, max_blocks)}
    if M * K + K * N + M * N < 2**31:
        times |= {config: elements_us(M, N, K, itemsize, config, max_blocks) for config in elements_plans(K)}
    return min(times, key=times.__getitem__)


def tiles_us(M: int, N: int, K: int, itemsize: int, config: TileConfig, max_blocks: int) -> float:
    """Time of the kernel, by its products or by memory, and of the copies before and after it."""
    block_k = 128 // itemsize
    steps, columns = pl.cdiv(K, block_k), config.block_n + NARROW
    cycles = LATENCY + waves(M, N, config, max_blocks) * (steps * COLUMN_STEP * columns + TILE)
    copied = (
        M * K if M % 8 or K % block_k else 0,
        K * N if K % block_k or N % 64 or itemsize == 4 else 0,
        M * N if M % 8 or N % 64 else 0,
    )
    copies = sum(KERNEL_US + 2 * each * itemsize / DEVICE_BYTES for each in copied if each)
    return max(cycles / CLOCK, (M * K + K * N + M * N) * itemsize / DEVICE_BYTES) + copies


def elements_plans(K: int) -> Iterator[ElementsConfig]:
    """Tiles for products whose copies would take longer."""
    for block_m, block_n, block_k in ((16, 16, 128), (16, 64, 64), (64, 16, 64), (32, 32, 64), (64, 64, 32)):
        block_k = min(block_k, max(16, pl.next_power_of_2(K)))
        for splits in (1, 2, 4, 8, 16, 32):
            if splits == 1 or splits * 2 * block_k <= K:
                yield ElementsConfig(block_m, block_n, block_k, splits)


def elements_us(M: int, N: int, K: int, itemsize: int, config: ElementsConfig, max_blocks: int) -> float:
    """Rounds of PROGRAMS a multiprocessor, each step of which waits for memory or issues a load for each element."""
    programs = pl.cdiv(M, config.block_m) * pl.cdiv(N, config.block_n) * config.splits
    resident = min(PROGRAMS, pl.cdiv(programs, max_blocks))
    elements = (config.block_m + config.block_n) * config.block_k
    step = max(ELEMENTS_STEP, resident * elements / ELEMENTS_PER_CYCLE)
    steps = pl.cdiv(pl.cdiv(K, config.block_k), config.splits)
    cycles = LATENCY + pl.cdiv(programs, max_blocks * resident) * (steps * step + TILE)
    sums = config.splits * M * N * 4 if config.splits > 1 else 0
    traffic = (M * K + K * N + M * N) * itemsize + sums
    added = KERNEL_US + sums / DEVICE_BYTES if sums else 0.0
    return max(cycles / CLOCK, traffic / DEVICE_BYTES) + added


def choose_tiles(M: int, N: int, max_blocks: int) -> TileConfig:
    """The configuration with the least work for the busiest block; a narrow tile costs more than its share."""

    def cost(config: TileConfig) -> int:
        return waves(M, N, config, max_blocks) * (config.block_n + NARROW)

    return min(CONFIGS, key=cost)


def tile_count(M: int, N: int, config: TileConfig) -> int:
    """Cluster tiles that cover an M x N matrix."""
    return pl.cdiv(M, config.cluster_tile[0]) * pl.cdiv(N, config.cluster_tile[1])


def waves(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Cluster tiles that the busiest cluster computes, with as many clusters as `max_blocks` allows."""
    return pl.cdiv(tile_count(M, N, config), max_blocks // math.prod(config.cluster))


def cluster_count(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Fewest clusters with the same number of waves: idle multiprocessors save power."""
    return pl.cdiv(tile_count(M, N, config), waves(M, N, config, max_blocks))
