"""Tile configurations of matmul_pallas.py, and which one a problem gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from jax.experimental import pallas as pl

WGMMA_M = 64
"""Rows of a tile per consumer: the M of one wgmma."""
ROW_BYTES = 128
"""Of a tile of an operand: the elements of K in a step, or a part of the columns."""


@dataclass(frozen=True)
class TileConfig:
    """How a matrix product is tiled.

    A block computes tiles of c, (consumers * WGMMA_M, block_n). The blocks of a cluster compute adjacent tiles and
    multicast their operands. Cluster tiles are visited in groups of `grid_tile_width` columns, down one group and up
    the next.
    """

    consumers: int
    """Warpgroups per block that multiply, WGMMA_M rows each."""
    block_n: int
    num_stages: int
    """Steps of K in flight."""
    cluster: tuple[int, int]
    """Rows and columns of blocks."""
    grid_tile_width: int = 8
    splits: int = 1
    """Parts of K, whose sums are added afterwards in the order of the parts."""

    def splits_of(self, k_steps: int) -> int:
        """Parts of so many steps of K, none of them empty."""
        return pl.cdiv(k_steps, pl.cdiv(k_steps, min(self.splits, k_steps)))

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


CONFIGS = (
    TileConfig(consumers=2, block_n=256, num_stages=4, cluster=(2, 1)),
    TileConfig(consumers=2, block_n=192, num_stages=4, cluster=(2, 1)),
    TileConfig(consumers=2, block_n=128, num_stages=6, cluster=(2, 1)),
    TileConfig(consumers=2, block_n=64, num_stages=8, cluster=(2, 1)),
    TileConfig(consumers=2, block_n=256, num_stages=4, cluster=(1, 1)),
    TileConfig(consumers=2, block_n=128, num_stages=6, cluster=(1, 1)),
    TileConfig(consumers=2, block_n=64, num_stages=8, cluster=(1, 1)),
    TileConfig(consumers=1, block_n=256, num_stages=5, cluster=(1, 1)),
    TileConfig(consumers=1, block_n=128, num_stages=8, cluster=(1, 1)),
    TileConfig(consumers=1, block_n=64, num_stages=12, cluster=(1, 1)),
)

CLOCK = 1700.0  # cycles in a microsecond
L2_BYTES = 48.0  # that a multiprocessor gets from the L2 cache in a cycle
LATENCY = 2000.0  # cycles until a load arrives
STEP, TILE, COLUMN = 128.0, 1500.0, 6.0  # cycles of a step besides its products, of a tile, and of each of its columns
DEVICE_BYTES = 4.0e6  # read or written in a microsecond
PROGRAMS = 4  # of elements on a multiprocessor at a time
ELEMENTS_STEP, ELEMENTS_PER_CYCLE = 700.0, 16.0  # cycles of a step that waits, elements that are loaded in a cycle
KERNEL_US = 2.5  # of a copy or an addition besides its traffic


Config = TileConfig | ElementsConfig


def choose_config(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> Config:
    """The configuration that is predicted to be the fastest."""
    times: dict[Config, float] = {
        config: predicted_us(M, N, K, itemsize, config, max_blocks) for config in plans(M, N, K, itemsize, max_blocks)
    }
    if M * K + K * N + M * N < 2**31:
        times |= {config: elements_us(M, N, K, itemsize, config, max_blocks) for config in elements_plans(K)}
    return min(times, key=times.__getitem__)


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


def plans(M: int, N: int, K: int, itemsize: int, max_blocks: int) -> Iterator[TileConfig]:
    """Every configuration; K is divided where the tiles leave most of the device idle."""
    k_steps = pl.cdiv(K, ROW_BYTES // itemsize)
    for config in CONFIGS:
        tiles = tile_count(M, N, config) * math.prod(config.cluster)
        counts = {config.splits_of(k_steps)}
        for splits in range(2, min(64, k_steps // 4, 4 * max_blocks // tiles) + 1):
            counts.add(replace(config, splits=splits).splits_of(k_steps))
        for splits in sorted(counts):
            yield replace(config, splits=splits)


def predicted_us(M: int, N: int, K: int, itemsize: int, config: TileConfig, max_blocks: int) -> float:
    """Time of the kernel, by its products, by the L2 cache or by memory, and of the copies before and after it."""
    k_steps = pl.cdiv(K, ROW_BYTES // itemsize)
    rows, columns = config.cluster
    loaded = ROW_BYTES * (WGMMA_M * config.consumers / columns + config.block_n / rows)
    products = 2.0 * config.consumers * config.block_n
    step = max(products, loaded / L2_BYTES, LATENCY / config.num_stages) + STEP
    tile = TILE + COLUMN * config.block_n * (2 if config.splits > 1 else 1)
    busiest = waves(M, N, config, max_blocks)
    cycles = LATENCY + busiest * (pl.cdiv(k_steps, config.splits) * step + tile)
    results = config.splits * M * N * (4 if config.splits > 1 else itemsize)
    traffic = (M * K + K * N) * itemsize + results
    return max(cycles / CLOCK, traffic / DEVICE_BYTES) + copies_us(M, N, K, itemsize, config)


def copies_us(M: int, N: int, K: int, itemsize: int, config: TileConfig) -> float:
    """Padded operands, and the sum of the parts or the valid columns of the result."""
    pitch = 16 // itemsize
    whole = b_columns(config, itemsize)
    elements = [
        2 * M * K if K % pitch else 0,
        2 * K * N if K % pitch or N % whole or itemsize == 4 else 0,
        (2 * config.splits + 1) * M * N if config.splits > 1 else 2 * M * N if N % pitch else 0,
    ]
    return sum(KERNEL_US + each * itemsize / DEVICE_BYTES for each in elements if each)


def b_columns(config: TileConfig, itemsize: int) -> int:
    """What the columns of b must be a multiple of: a pitch that TMA reads; in tiles of several parts, whole parts."""
    return 64 if config.block_n > 64 and itemsize == 2 else 16 // itemsize


def tile_count(M: int, N: int, config: TileConfig) -> int:
    """Cluster tiles that cover an M x N matrix."""
    return pl.cdiv(M, config.cluster_tile[0]) * pl.cdiv(N, config.cluster_tile[1])


def waves(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Cluster tiles that the busiest cluster computes, with as many clusters as `max_blocks` allows."""
    return pl.cdiv(tile_count(M, N, config) * config.splits, max_blocks // math.prod(config.cluster))


def cluster_count(M: int, N: int, config: TileConfig, max_blocks: int) -> int:
    """Fewest clusters with the same number of waves: idle multiprocessors save power."""
    return pl.cdiv(tile_count(M, N, config) * config.splits, waves(M, N, config, max_blocks))
