"""Plans of the plain kernel for 16 bits: tile, parts of K, and copies of operands that begin at odd addresses.

The choice is that of a model of few constants, fitted to the times of all plans over drawn shapes on an H200
(docs/lab/matmul_lines.md). Programs go in rounds over the multiprocessors. A round takes its steps of K, which latency
bounds if a multiprocessor has few programs, and the tensor cores if it has many. All rounds together take no less than
the traffic of the device's memory and of the L2 cache.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from triton_kernels.matmul._few import LOADS, MOST_ROWS, VECTOR, Few
from triton_kernels.matmul._pad import worth_padding
from triton_kernels.matmul._parts import STEP


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
    """A configuration of the plain kernel."""

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

    launch: float = 1.167
    block: float = 0.001222  # until the first step
    step: float = 0.001508
    step_element: float = 2.731e-05  # of a step's blocks of A and B
    rate: float = 9.565e05  # products of a multiprocessor
    copy: float = 1.36e05  # elements that a multiprocessor copies to shared memory
    store: float = 1.541e04
    store_odd: float = 0.4436  # of the time of a store more, for single elements, 64 a thread
    a_odd: float = 2.506  # of a step's time more
    b_odd: float = 3.274
    busy_block: float = 0.5313
    l2: float = 3.604e07  # more than L2 delivers: neighbours read the same at the same time
    memory: float = 3.106e06
    add: float = 1.415
    add_bytes: float = 2.689e06
    pad: float = 2.45
    pad_bytes: float = 4.615e06
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
    Tile(128, 256, 64, 8, 3, 0.307, 1.879),
    Tile(256, 128, 64, 8, 3, 0.376, 0.737),
    Tile(128, 128, 64, 4, 3, 0.402, 2.479),
    Tile(64, 256, 64, 8, 4, 0.443, 0.738),
    Tile(64, 128, 64, 4, 4, 0.478, 0.991),
    Tile(64, 128, 64, 4, 3, 0.544, 0.813),
    Tile(128, 64, 64, 4, 4, 0.546, 4.526),
    Tile(64, 64, 64, 4, 5, 0.655, 1.348),
    Tile(32, 128, 64, 4, 4, 0.837, 0.889),
    Tile(128, 32, 64, 4, 5, 0.882, 1.267),
    Tile(32, 64, 128, 4, 4, 1.224, 0.954),
    Tile(64, 32, 128, 4, 4, 1.030, 0.755),
    Tile(32, 32, 128, 4, 4, 1.845, 1.033),
    Tile(64, 16, 128, 4, 4, 1.414, 0.854),
    Tile(16, 64, 128, 4, 5, 1.789, 0.889),
    Tile(16, 32, 256, 4, 4, 2.007, 1.210),
    Tile(16, 16, 256, 4, 4, 2.918, 1.168),
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
    store = elements / COSTS.store * (1 if x.c_whole else 1 + COSTS.store_odd * (elements / (2048 * tile.warps)) ** 2)
    memory = 2 * (x.M * x.K + x.K * x.N + x.M * x.N) / COSTS.memory
    traffic = 2 * programs * steps * tile.K * (min(tile.M, x.M) + min(tile.N, x.N))
    busy = most * (COSTS.busy_block + work + store)
    us = COSTS.launch + longest(alone, busy, memory, traffic / COSTS.l2)
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


LONG_US, NEAR, TIMED = 25.0, 1.3, 3
"""Products that take longer are worth timing so many tiles whose prediction is so near."""
