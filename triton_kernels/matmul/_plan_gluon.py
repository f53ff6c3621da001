"""Plans of gluon.py for 16 bits: tile, parts of K, and whether C or its transpose is computed.

A model of the kind of _plan.py: persistent programs, one on a multiprocessor, compute tile after tile. Matrices
that TMA cannot read or write are copied.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from triton_kernels.matmul._plan import PARTS, count, longest

ROWS = 64
"""Rows of a tile per consumer warpgroup: the M of one wgmma."""
STEP = 64
"""Terms of a step."""
NARROW = 32
"""Columns of a tall C whose product is left to the plain kernel."""


class Problem(NamedTuple):
    """What the choice depends on."""

    M: int
    N: int
    K: int
    a_copied: bool
    b_copied: bool
    c_copied: bool
    multiprocessors: int

    @property
    def transposed(self) -> "Problem":
        return self._replace(M=self.N, N=self.M, a_copied=self.b_copied, b_copied=self.a_copied)

    @property
    def share_of_pointers(self) -> float:
        """Of this kernel's predicted time: what the plain kernel must be predicted to need less of, to be preferred.

        It always is for a tall C of few columns: TMA reads short rows of A no faster, and a tile is mostly latency.
        """
        return inf if self.N <= NARROW < self.M else 0.95


class Tile(NamedTuple):
    """A configuration of gluon.py."""

    consumers: int
    N: int
    stages: int
    group: int
    buffers: int
    slow: float
    """Time of a step, relative to what its size says."""


class Plan(NamedTuple):
    """How a product is computed."""

    tile: Tile
    parts: int
    transposed: bool


class Costs(NamedTuple):
    """Of an H200: microseconds, and bytes or elements in a microsecond."""

    launch: float = 2.074
    block: float = 0.4077  # until the first step, and after the last one
    step: float = 0.1399
    step_element: float = 1.499e-05
    store: float = 2.06e04
    l2: float = 1.141e07
    memory: float = 3.424e06
    add: float = 1.864
    add_bytes: float = 2.109e06
    copy: float = 1.433
    copy_bytes: float = 3.899e06
    copy_out: float = 1.328
    copy_out_bytes: float = 2.864e06


COSTS = Costs()
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
TRANSPOSED_M = 64
"""The most rows for which the transpose of C may be computed: its tiles are narrower than theirs."""
LONG_US, NEAR, TIMED = 25.0, 1.15, 3
"""Products that take longer are worth timing so many tiles whose prediction is so near."""


def candidates(x: Problem) -> Iterator[Plan]:
    """All plans that may be the best one."""
    for transposed in (False, True) if x.M <= TRANSPOSED_M else (False,):
        M, N = (x.N, x.M) if transposed else (x.M, x.N)
        for tile in TILES:
            tiles = count(M, ROWS * tile.consumers) * count(N, tile.N)
            for parts in PARTS:
                if parts == 1 or (parts <= count(x.K, 256) and tiles * parts <= 3 * x.multiprocessors):
                    yield Plan(tile, parts, transposed)


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan: copies, launch, the longest of traffic and rounds of tiles, the addition of parts."""
    tile, parts = plan.tile, plan.parts
    if plan.transposed:
        x = x.transposed
    rows, columns = ROWS * tile.consumers, tile.N
    steps = count(count(x.K, STEP), parts)
    tiles = count(x.M, rows) * count(x.N, columns) * parts
    step = (COSTS.step + COSTS.step_element * rows * columns) * tile.slow
    rounds = count(tiles, x.multiprocessors) * (COSTS.block + steps * step + rows * columns / COSTS.store)
    memory = 2 * (x.M * x.K + x.K * x.N + x.M * x.N) / COSTS.memory
    us = COSTS.launch + longest(
        rounds, memory, 2 * tiles * steps * STEP * (min(rows, x.M) + min(columns, x.N)) / COSTS.l2
    )
    if parts > 1:
        us += COSTS.add + 4 * (parts + 1) * x.M * x.N / COSTS.add_bytes
    elif x.c_copied:
        us += COSTS.copy_out + 4 * x.M * x.N / COSTS.copy_out_bytes
    if x.a_copied or x.b_copied:
        us += COSTS.copy + 4 * (x.a_copied * x.M * x.K + x.b_copied * x.K * x.N) / COSTS.copy_bytes
    return us


@lru_cache(maxsize=4096)
def best_of(x: Problem, turns: bool = True, divides: bool = True) -> tuple[Plan, float]:
    """The plan that is predicted to be the fastest, and its time. turns: also the transpose; divides: also parts."""
    plans = (each for each in candidates(x) if (turns or not each.transposed) and (divides or each.parts == 1))
    plan = min(plans, key=lambda each: predicted_us(each, x))
    return plan, predicted_us(plan, x)


def best_tiles(x: Problem, parts: int) -> list[Tile]:
    """Tiles by predicted time: the fastest one for short products, and others that may be as fast for long ones."""
    times = {tile: predicted_us(Plan(tile, parts, False), x) for tile in TILES}
    least = min(times.values())
    near = sorted((tile for tile in TILES if times[tile] <= NEAR * least), key=times.__getitem__)
    return near[: TIMED if least >= LONG_US else 1]
