"""Tile configurations of matmul_pallas.py, and which one a problem gets."""

from __future__ import annotations

import math
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


CONFIGS = (
    TileConfig(block_n=256, num_stages=4, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=192, num_stages=4, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=128, num_stages=6, cluster=(2, 1), grid_tile_width=8),
    TileConfig(block_n=64, num_stages=8, cluster=(2, 1), grid_tile_width=8),
)


def choose_config(M: int, N: int, max_blocks: int) -> TileConfig:
    """The configuration with the least work for the busiest block; a narrow tile costs more than its share."""

    def cost(config: TileConfig) -> int:
        return waves(M, N, config, max_blocks) * (config.block_n + 32)

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
