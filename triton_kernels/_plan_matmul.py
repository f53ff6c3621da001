"""Plans of matmul.py for 16 bits: tile, parts of K, and copies of operands that begin at odd addresses.

The choice is that of a model of few constants, fitted to the times of all plans over drawn shapes on an H200
(docs/lab/matmul_lines.md). Programs go in rounds over the multiprocessors. A round takes its steps of K, which latency
bounds if a multiprocessor has few programs, and the tensor cores if it has many. All rounds together take no less than
the traffic of the device's memory and of the L2 cache.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from triton_kernels._few import LOADS, MOST_ROWS, VECTOR, Few
from triton_kernels._pad import worth_padding
from triton_kernels._parts import STEP


class Problem(NamedTuple):
    """What the choice depends on."""

    M: int
    N: int
    K: int
    a_whole: bool
    """Whether rows of a begin and end at multiples of 16 bytes."""
    b_whole: bool
    c_whole: bool
    along: bool | None
    """Whether the larger operand is contiguous along K; None if in neither dimension."""
    multiprocessors: int


class Tile(NamedTuple):
    """A configuration of matmul.py."""

    M: int
    N: int
    K: int
    warps: int
    stages: int
    slow: float
    """Time of a step, relative to what its size says."""
    slow_at_any_address: float
    """The same if an operand is copied by single elements."""


class Tiles(NamedTuple):
    """How a product is computed on tensor cores."""

    tile: Tile
    parts: int
    padded: bool


class Costs(NamedTuple):
    """Of an H200: microseconds, and bytes, elements or products in a microsecond."""

    launch: float = 1.229
    block: float = 0.002449  # until the first step
    step: float = 0.003084
    step_element: float = 2.115e-05  # of a step's blocks of A and B
    rate: float = 9.311e05  # products of a multiprocessor
    copy: float = 1.823e05  # elements that a multiprocessor copies to shared memory
    store: float = 1.671e04
    store_odd: float = 0.4215  # of the time of a store more, for single elements of 8192
    a_odd: float = 3.366  # of a step's time more
    b_odd: float = 4.481
    busy_block: float = 0.4914
    l2: float = 3.494e07  # more than L2 delivers: neighbours read the same at the same time
    memory: float = 2.763e06
    add: float = 1.425
    add_bytes: float = 2.916e06
    pad: float = 2.623
    pad_bytes: float = 4.073e06
    few_launch: float = 1.254
    few_block: float = 0.01127
    few_step: float = 0.498
    few_row: float = 0.2419
    few_odd: float = 0.0109
    few_rate: float = 1.456e04
    few_memory: float = 2.469e06
    few_memory_odd: float = 0.1768


COSTS = Costs()
TILES = (
    Tile(128, 256, 64, 8, 3, 0.293, 1.707),
    Tile(256, 128, 64, 8, 3, 0.352, 0.785),
    Tile(128, 192, 64, 8, 4, 0.32, 3.0),
    Tile(128, 192, 64, 8, 3, 0.33, 3.0),
    Tile(128, 96, 64, 4, 4, 0.45, 3.0),
    Tile(64, 192, 64, 4, 4, 0.44, 2.0),
    Tile(128, 128, 64, 4, 3, 0.400, 2.564),
    Tile(64, 256, 64, 8, 4, 0.404, 0.717),
    Tile(64, 128, 64, 4, 4, 0.466, 0.974),
    Tile(64, 128, 64, 4, 3, 0.485, 0.863),
    Tile(128, 64, 64, 4, 4, 0.523, 4.526),
    Tile(64, 64, 64, 4, 5, 0.646, 1.354),
    Tile(32, 128, 64, 4, 4, 0.808, 0.888),
    Tile(128, 32, 64, 4, 5, 0.995, 1.227),
    Tile(32, 64, 128, 4, 4, 1.279, 0.949),
    Tile(64, 32, 128, 4, 4, 1.059, 0.742),
    Tile(32, 32, 128, 4, 4, 1.909, 1.010),
    Tile(64, 16, 128, 4, 4, 1.698, 0.832),
    Tile(16, 64, 128, 4, 5, 1.969, 0.872),
    Tile(16, 32, 256, 4, 4, 2.219, 1.178),
    Tile(16, 16, 256, 4, 4, 3.345, 1.153),
)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
FEW_ROWS = 4
"""The most rows, or columns, for which CUDA cores may be chosen."""
FEW_COLUMNS = {False: (16, 32, 64, 128, 256), True: (2, 8)}
"""Of a program: contiguous ones fill requests of 32 bytes."""
RESIDENT = 8
"""The most programs of a multiprocessor that the model counts."""


def count(size: int, by: int) -> int:
    return -(-size // by)


def candidates(x: Problem) -> Iterator[Tiles | Few]:
    """All plans that may be the best one: parts that the device has room for, with at least one step of k each."""
    pads = (False, True) if worth_padding(x.M, x.N, x.K) and not (x.a_whole and x.b_whole) else (False,)
    for tile in TILES:
        tiles = count(x.M, tile.M) * count(x.N, tile.N)
        for parts in PARTS:
            if parts == 1 or (parts <= count(x.K, STEP) and tiles * parts <= 3 * x.multiprocessors):
                yield from (Tiles(tile, parts, padded) for padded in pads)
    if x.along is not None and min(x.M, x.N) <= FEW_ROWS:
        for columns in FEW_COLUMNS[x.along]:
            for warps in (4, 8):
                for parts in PARTS:
                    blocks = count(max(x.M, x.N), columns) * parts
                    if parts == 1 or (parts <= count(x.K, STEP) and blocks <= 16 * x.multiprocessors):
                        yield Few(columns, warps, parts)


def predicted_us(plan: Tiles | Few, x: Problem) -> float:
    """The time of a plan."""
    return _tiles_us(plan, x) if isinstance(plan, Tiles) else _few_us(plan, x)


def parts_us(parts: int, M: int, N: int) -> float:
    """The time of adding parts of C."""
    return COSTS.add + 4 * (parts + 1) * M * N / COSTS.add_bytes if parts > 1 else 0.0


def _tiles_us(plan: Tiles, x: Problem) -> float:
    """Launch, the longest of traffic, of rounds of resident programs and of a multiprocessor's work; copies, parts."""
    tile, parts = plan.tile, plan.parts
    each = count(count(x.K, STEP), parts) * STEP
    steps = count(min(each, x.K), tile.K)
    programs = count(x.M, tile.M) * count(x.N, tile.N) * count(x.K, each)
    a_odd, b_odd = not (x.a_whole or plan.padded), not (x.b_whole or plan.padded)
    odd = 1 + COSTS.a_odd * a_odd + COSTS.b_odd * b_odd
    slow = tile.slow_at_any_address if a_odd or b_odd else tile.slow
    operands = (tile.M + tile.N) * tile.K
    most = count(programs, x.multiprocessors)
    step = (COSTS.step + COSTS.step_element * operands) * odd * slow
    alone = count(most, _resident(tile, a_odd or b_odd)) * (COSTS.block + steps * step)
    work = steps * (tile.M * tile.N * tile.K / COSTS.rate + operands / COSTS.copy * odd) * slow
    elements = tile.M * tile.N
    store = elements / COSTS.store * (1 if x.c_whole else 1 + COSTS.store_odd * elements / 8192)
    memory = 2 * (x.M * x.K + x.K * x.N + x.M * x.N) / COSTS.memory
    busy = most * (COSTS.busy_block + work + store)
    us = COSTS.launch + longest(
        alone, busy, memory, 2 * programs * steps * tile.K * (min(tile.M, x.M) + min(tile.N, x.N)) / COSTS.l2
    )
    if plan.padded:
        us += COSTS.pad + 4 * ((not x.a_whole) * x.M * x.K + (not x.b_whole) * x.K * x.N) / COSTS.pad_bytes
    return us + parts_us(parts, x.M, x.N)


def _resident(tile: Tile, odd: bool) -> int:
    """Programs that a multiprocessor holds, by shared memory and by registers."""
    shared = (1 if odd else tile.stages) * 2 * (tile.M + tile.N) * tile.K + 1024
    registers = (tile.M * tile.N // (32 * tile.warps) + 70) * 32 * tile.warps
    return max(1, min(227 * 1024 // shared, 65536 // registers, RESIDENT))


def _few_us(plan: Few, x: Problem) -> float:
    """Launch, and the longest of rounds of programs, of a multiprocessor's work, and of reading the larger operand."""
    few, many, whole = (x.M, x.N, x.b_whole) if x.M <= x.N else (x.N, x.M, x.a_whole)
    rows = min(MOST_ROWS, 1 << (few - 1).bit_length())
    each = count(count(x.K, plan.parts), STEP) * STEP
    terms = VECTOR * 32 * plan.warps // plan.columns * LOADS
    steps = count(min(each, x.K), terms)
    blocks = count(many, plan.columns) * count(x.K, each)
    odd = 1 if whole else 1 + COSTS.few_odd
    rounds = count(blocks * plan.warps, 32 * x.multiprocessors)
    alone = rounds * (COSTS.few_block + steps * (COSTS.few_step + COSTS.few_row * rows) * odd)
    busy = count(blocks, x.multiprocessors) * steps * terms * plan.columns * odd * rows / COSTS.few_rate
    memory = 2 * many * x.K / COSTS.few_memory * (1 if whole else 1 + COSTS.few_memory_odd)
    return COSTS.few_launch + longest(alone, busy, memory) + parts_us(plan.parts, x.M, x.N)


def longest(*times: float) -> float:
    """The longest of concurrent activities, and some of the others, since they overlap imperfectly."""
    return sum(each**4 for each in times) ** 0.25


@lru_cache(maxsize=4096)
def best_of(x: Problem) -> tuple[Tiles | Few, float]:
    """The plan that is predicted to be the fastest, and its time."""
    plan = min(candidates(x), key=lambda each: predicted_us(each, x))
    return plan, predicted_us(plan, x)


def best_tiles(x: Problem, parts: int, padded: bool) -> list[Tile]:
    """Tiles by predicted time: the fastest one for short products, and others that may be as fast for long ones."""
    times = {tile: predicted_us(Tiles(tile, parts, padded), x) for tile in TILES}
    least = min(times.values())
    near = sorted((tile for tile in TILES if times[tile] <= NEAR * least), key=times.__getitem__)
    return near[: TIMED if least >= LONG_US else 1]


LONG_US, NEAR, TIMED = 25.0, 1.2, 3
"""Products that take longer are worth timing so many tiles whose prediction is so near."""
