"""Predicted times of `gluon` for 16 bits, and its plan: tile, parts of K, and whether C or its transpose is computed.

The model is like that of _plan.py, with constants in the same units. Programs are persistent, one per multiprocessor,
and compute one tile after the other. Matrices that TMA cannot read or write are copied.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import triton

from triton_kernels.matmul._plan import LONG_US, PARTS, TIMED, Problem, longest, memory_us, parts_us

ROWS = 64
"""Rows of a tile per consumer warpgroup: the M of one wgmma."""
STEP = 64
"""Terms of a step."""


class Tile(NamedTuple):
    """A configuration of gluon.py."""

    consumers: int
    N: int
    stages: int
    group: int
    buffers: int
    slow: float
    """Measured time of a step, divided by the time predicted from its size."""


class Plan(NamedTuple):
    """The plan of a product: the tile, the parts of K, and the order of the operands."""

    tile: Tile
    parts: int
    transposed: bool


# Fitted on an H200.
LAUNCH_US, ADD_US, COPY_US, COPY_OUT_US = 2.074, 1.864, 1.433, 1.328  # from the launch of each kernel to its first byte
TILE_CYCLES = 807.2  # per tile, before its first step and after its last one
STEP_CYCLES = 277.0  # fixed part of a step
STEP_ELEMENT_CYCLES = 0.02968  # of a step, per element of the tile
STORES = 10.40  # elements per cycle from registers to memory
L2_BYTES = 43.66  # bytes per cycle and multiprocessor
MEMORY, ADD_MEMORY, COPY_MEMORY, COPY_OUT_MEMORY = 0.6964, 0.4289, 0.793, 0.5825  # shares of the peak memory rate
TILES = (
    Tile(2, 256, 4, 16, 2, 0.964),
    Tile(2, 256, 3, 16, 2, 0.978),
    Tile(2, 192, 4, 16, 3, 0.948),
    Tile(2, 128, 6, 8, 2, 0.964),
    Tile(2, 64, 8, 8, 1, 1.182),
    Tile(2, 32, 10, 16, 1, 1.449),
    Tile(1, 256, 5, 16, 2, 1.022),
    Tile(1, 192, 6, 16, 3, 0.851),
    Tile(1, 128, 8, 16, 2, 0.865),
    Tile(1, 64, 12, 16, 1, 1.031),
    Tile(1, 32, 12, 16, 1, 1.004),
    Tile(1, 16, 12, 16, 1, 1.027),
)

TRANSPOSED_M = 64  # most rows for which the transpose of C is tried: its tiles can be narrower than 64 rows
NEAR = 1.15  # for long products, tiles whose prediction is within this factor of the least are timed


def candidates(x: Problem) -> Iterator[Plan]:
    """All plans that may be the fastest."""
    for transposed in (False, True) if x.M <= TRANSPOSED_M else (False,):
        M, N = (x.N, x.M) if transposed else (x.M, x.N)
        for tile in TILES:
            tiles = triton.cdiv(M, ROWS * tile.consumers) * triton.cdiv(N, tile.N)
            for parts in PARTS:
                if parts == 1 or (parts <= triton.cdiv(x.K, 256) and tiles * parts <= 3 * x.device.multiprocessors):
                    yield Plan(tile, parts, transposed)


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan in microseconds: copies, launch, the longest of traffic and rounds of tiles, adding parts."""
    tile, parts = plan.tile, plan.parts
    if plan.transposed:
        x = x.transposed
    processors, clock, memory = x.device
    rows, columns = ROWS * tile.consumers, tile.N
    steps = triton.cdiv(triton.cdiv(x.K, STEP), parts)
    tiles = triton.cdiv(x.M, rows) * triton.cdiv(x.N, columns) * parts
    step = (STEP_CYCLES + STEP_ELEMENT_CYCLES * rows * columns) * tile.slow
    rounds = triton.cdiv(tiles, processors) * (TILE_CYCLES + steps * step + rows * columns / STORES) / clock
    traffic = 2 * tiles * steps * STEP * (min(rows, x.M) + min(columns, x.N)) / (L2_BYTES * processors * clock)
    us = LAUNCH_US + longest(rounds, memory_us(x, MEMORY), traffic) + parts_us(parts, x, ADD_US, ADD_MEMORY)
    if x.c_odd and parts == 1:
        us += COPY_OUT_US + 4 * x.M * x.N / (COPY_OUT_MEMORY * memory)
    if x.a_odd or x.b_odd:
        us += COPY_US + 4 * (x.a_odd * x.M * x.K + x.b_odd * x.K * x.N) / (COPY_MEMORY * memory)
    return us


@lru_cache(maxsize=4096)
def best_of(x: Problem, turns: bool = True, divides: bool = True) -> tuple[Plan, float]:
    """The fastest plan by prediction, and its time. turns: also try the transpose; divides: also try several parts."""
    plans = (each for each in candidates(x) if (turns or not each.transposed) and (divides or each.parts == 1))
    plan = min(plans, key=lambda each: predicted_us(each, x))
    return plan, predicted_us(plan, x)


def best_tiles(x: Problem, parts: int) -> list[Tile]:
    """Tiles by predicted time: the fastest one for short products, and others that may be as fast for long ones."""
    times = {tile: predicted_us(Plan(tile, parts, False), x) for tile in TILES}
    least = min(times.values())
    near = sorted((tile for tile in TILES if times[tile] <= NEAR * least), key=times.__getitem__)
    return near[: TIMED if least >= LONG_US else 1]
