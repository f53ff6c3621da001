"""Heuristics shared by the configuration lists: how many tiles a matrix gives, and how many a device needs."""

from functools import cache
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from triton_kernels._runtime.interpreter import INTERPRET

TileCounts = dict[triton.Config, int]


class Device(NamedTuple):
    """The properties of a GPU on which predicted times depend."""

    multiprocessors: int
    clock: float
    """Highest clock of the multiprocessors, in cycles per microsecond."""
    memory: float
    """Peak rate of the device memory, in bytes per microsecond."""


INTERPRETED = Device(8, 1000.0, 1e6)
"""Properties assumed for CPU tensors, in the interpreter."""


def device(x: Tensor) -> Device:
    """The properties of the GPU that holds x."""
    return INTERPRETED if INTERPRET or not x.is_cuda else _device(x.device.index)


@cache
def _device(index: int) -> Device:
    found = triton.runtime.driver.active.utils.get_device_properties(index)
    transfers = 2 * found["mem_clock_rate"] * found["mem_bus_width"] / 8  # bytes per millisecond: two transfers a cycle
    return Device(found["multiprocessor_count"], max(1.0, found["sm_clock_rate"] / 1e3), max(1.0, transfers / 1e3))


def multiprocessors(x: Tensor) -> int:
    """Streaming multiprocessors of the GPU that holds x."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count


def shared_memory(x: Tensor) -> int:
    """Bytes of shared memory per multiprocessor of the GPU that holds x."""
    return torch.cuda.get_device_properties(x.device).shared_memory_per_multiprocessor


def tile_counts(configs: list[triton.Config], M: int, N: int) -> TileCounts:
    """Tiles of [BLOCK_M, BLOCK_N] that cover an M x N matrix, for each configuration."""
    return {c: triton.cdiv(M, c.kwargs["BLOCK_M"]) * triton.cdiv(N, c.kwargs["BLOCK_N"]) for c in configs}


def with_enough_tiles(tiles: TileCounts, processors: int) -> TileCounts:
    """Drops configurations with fewer tiles than a third of the multiprocessors, unless none has more."""
    enough = min(max(tiles.values()), processors // 3)
    return {config: count for config, count in tiles.items() if count >= enough}


def without_small_tiles(tiles: TileCounts, processors: int) -> list[triton.Config]:
    """Drops configurations with over 4 times the fewest tiles, unless one wave runs them all."""
    fewest = min(tiles.values())
    return [config for config, count in tiles.items() if count <= max(4 * fewest, processors)]


def columns_that_suit(configs: list[triton.Config], K: int) -> list[triton.Config]:
    """Keeps configurations whose tiles cover K columns with at most 1.5 times the fewest columns. Then drops tiles with
    less than half the columns of the widest one left."""
    columns = {config: triton.cdiv(K, config.kwargs["BLOCK_N"]) * config.kwargs["BLOCK_N"] for config in configs}
    fewest = min(columns.values())
    suitable = [config for config in configs if 2 * columns[config] <= 3 * fewest]
    widest = max(config.kwargs["BLOCK_N"] for config in suitable)
    return [config for config in suitable if 2 * config.kwargs["BLOCK_N"] >= widest]
