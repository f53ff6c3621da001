"""Predicted times of `pipelined`, `parts` and the kernel for few rows in 16 bits, and the choice of the fastest.

The model has few constants, fitted to the times of all plans over random shapes on an H200
(docs/lab/matmul.md). Programs run in rounds over the multiprocessors. With few programs per multiprocessor, the
latency of the steps over K bounds a round; with many, the tensor cores do. All rounds together take at least the time
of the memory and L2 traffic. Constants are in cycles and in shares of the device's peak memory rate; launches are in
microseconds.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import triton

from triton_kernels._runtime.configs import Device
from triton_kernels.matmul._add_parts import STEP
from triton_kernels.matmul._few import LOADS, MOST_ROWS, VECTOR, Few


class Problem(NamedTuple):
    """The properties of a product on which the choice of a plan depends."""

    M: int
    N: int
    K: int
    a_odd: bool
    """Rows of a do not all begin and end at multiples of 16 bytes (for TMA: a must be copied)."""
    b_odd: bool
    c_odd: bool
    device: Device
    along: bool | None = None
    """True if the larger operand is contiguous along K, False if along the other dimension, None if along neither."""

    @property
    def transposed(self) -> "Problem":
        return self._replace(M=self.N, N=self.M, a_odd=self.b_odd, b_odd=self.a_odd)


class Tile(NamedTuple):
    """A configuration of the pipelined kernel."""

    M: int
    N: int
    K: int
    warps: int
    stages: int
    slow: float
    """Measured time of a step, divided by the time predicted from its size."""
    slow_odd: float
    """The same ratio if an operand is copied by single elements."""


class Tiles(NamedTuple):
    """A product on tensor cores. padded: operands at odd addresses are first copied, with padding."""

    tile: Tile
    parts: int
    padded: bool


# Fitted on an H200.
LAUNCH_US, ADD_US, PAD_US, FEW_LAUNCH_US = 1.167, 1.415, 2.45, 1.254  # from the launch of each kernel to its first byte
STEP_CYCLES = 2.986  # fixed part of a step
STEP_ELEMENT_CYCLES = 0.05407  # per element of a step's blocks of A and B
PRODUCTS, COPIES, STORES = 483.1, 68.69, 7.783  # multiply-adds, and elements to and from shared memory, per cycle
STORE_ODD = 0.4436  # extra time of single-element stores (64 per thread), relative to wide stores
A_ODD, B_ODD = 2.506, 3.274  # extra time of a step whose A, or B, is copied by single elements, relative to the step
PROGRAM_CYCLES = 1052.0  # per program outside its steps, while other programs run
L2_BYTES = 137.9  # per cycle and multiprocessor; above the L2 cache's rate, since concurrent programs share reads
MEMORY, ADD_MEMORY, PAD_MEMORY = 0.6317, 0.5469, 0.9386  # shares of the peak memory rate
FEW_STEP_CYCLES, FEW_ROW_CYCLES = 986.0, 479.0  # per step of the kernel for few rows, and per row in the step
FEW_PRODUCTS = 7.354  # multiply-adds per cycle and multiprocessor
FEW_MEMORY, FEW_ODD = 0.5022, 0.1768  # share of the peak memory rate; extra time of reading single elements
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
LEAST_PADDED = 2**22  # fewest multiply-adds for which padded copies are tried
FEW_MOST = 4  # most rows, or columns, that are multiplied on CUDA cores
FEW_COLUMNS = {False: (16, 32, 64, 128, 256), True: (2, 8)}  # columns per program; contiguous ones fill 32-byte reads
RESIDENT = 8  # most programs per multiprocessor that the model counts
LONG_US, NEAR, TIMED = 25.0, 1.3, 3  # longer products: up to TIMED tiles predicted within NEAR of the best are timed


def candidates(x: Problem) -> Iterator[Tiles | Few]:
    """All plans that may be the fastest: parts that fit on the device at the same time, of at least STEP terms each."""
    pads = (x.a_odd or x.b_odd) and min(x.M, x.N, x.K) >= 32 and x.M * x.N * x.K >= LEAST_PADDED
    for tile in TILES:
        tiles = triton.cdiv(x.M, tile.M) * triton.cdiv(x.N, tile.N)
        for parts in PARTS:
            if parts == 1 or (parts <= triton.cdiv(x.K, STEP) and tiles * parts <= 3 * x.device.multiprocessors):
                yield from (Tiles(tile, parts, padded) for padded in ((False, True) if pads else (False,)))
    if x.along is not None and min(x.M, x.N) <= FEW_MOST:
        for columns in FEW_COLUMNS[x.along]:
            for warps in (4, 8):
                for parts in PARTS:
                    blocks = triton.cdiv(max(x.M, x.N), columns) * parts
                    if parts == 1 or (parts <= triton.cdiv(x.K, STEP) and blocks <= 16 * x.device.multiprocessors):
                        yield Few(columns, warps, parts)


def predicted_us(plan: Tiles | Few, x: Problem) -> float:
    """The time of a plan in microseconds."""
    us = _tiles_us(plan, x) if isinstance(plan, Tiles) else _few_us(plan, x)
    return us + parts_us(plan.parts, x, ADD_US, ADD_MEMORY)


def parts_us(parts: int, x: Problem, launch_us: float, share: float) -> float:
    """The time of adding parts of C."""
    return launch_us + 4 * (parts + 1) * x.M * x.N / (share * x.device.memory) if parts > 1 else 0.0


def memory_us(x: Problem, share: float) -> float:
    """The time of moving each matrix once."""
    return 2 * (x.M * x.K + x.K * x.N + x.M * x.N) / (share * x.device.memory)


def _tiles_us(plan: Tiles, x: Problem) -> float:
    """Launch and copies; the longest of traffic, of rounds of resident programs, and of a multiprocessor's work."""
    tile, (processors, clock, memory) = plan.tile, x.device
    each = triton.cdiv(triton.cdiv(x.K, STEP), plan.parts) * STEP
    steps = triton.cdiv(min(each, x.K), tile.K)
    programs = triton.cdiv(x.M, tile.M) * triton.cdiv(x.N, tile.N) * triton.cdiv(x.K, each)
    most = triton.cdiv(programs, processors)
    a_odd, b_odd = x.a_odd and not plan.padded, x.b_odd and not plan.padded
    odd, slow = 1 + A_ODD * a_odd + B_ODD * b_odd, tile.slow_odd if a_odd or b_odd else tile.slow
    operands, elements = (tile.M + tile.N) * tile.K, tile.M * tile.N
    step = (STEP_CYCLES + STEP_ELEMENT_CYCLES * operands) * odd * slow
    rounds = triton.cdiv(most, _resident(tile, a_odd or b_odd)) * steps * step / clock
    work = steps * (elements * tile.K / PRODUCTS + operands / COPIES * odd) * slow
    store = elements / STORES * (1 + STORE_ODD * (elements / (2048 * tile.warps)) ** 2 if x.c_odd else 1)
    busy = most * (PROGRAM_CYCLES + work + store) / clock
    traffic = 2 * programs * steps * tile.K * (min(tile.M, x.M) + min(tile.N, x.N)) / (L2_BYTES * processors * clock)
    us = LAUNCH_US + longest(rounds, busy, memory_us(x, MEMORY), traffic)
    if plan.padded:
        us += PAD_US + 4 * (x.a_odd * x.M * x.K + x.b_odd * x.K * x.N) / (PAD_MEMORY * memory)
    return us


def _resident(tile: Tile, odd: bool) -> int:
    """Programs that a multiprocessor holds, by 227 KiB of shared memory and 65536 registers."""
    shared = (1 if odd else tile.stages) * 2 * (tile.M + tile.N) * tile.K + 1024
    registers = (tile.M * tile.N // (32 * tile.warps) + 70) * 32 * tile.warps
    return max(1, min(227 * 1024 // shared, 65536 // registers, RESIDENT))


def _few_us(plan: Few, x: Problem) -> float:
    """Launch, and the longest of rounds of programs, of a multiprocessor's work, and of reading the larger operand."""
    few, many, odd = (x.M, x.N, x.b_odd) if x.M <= x.N else (x.N, x.M, x.a_odd)
    processors, clock, memory = x.device
    rows = min(MOST_ROWS, triton.next_power_of_2(few))
    each = triton.cdiv(triton.cdiv(x.K, plan.parts), STEP) * STEP
    terms = VECTOR * 32 * plan.warps // plan.columns * LOADS
    steps = triton.cdiv(min(each, x.K), terms)
    blocks = triton.cdiv(many, plan.columns) * triton.cdiv(x.K, each)
    rounds = triton.cdiv(blocks * plan.warps, 32 * processors) * steps * (FEW_STEP_CYCLES + FEW_ROW_CYCLES * rows)
    busy = triton.cdiv(blocks, processors) * steps * terms * plan.columns * rows / FEW_PRODUCTS
    read = 2 * many * x.K / (FEW_MEMORY * memory) * (1 + FEW_ODD * odd)
    return FEW_LAUNCH_US + longest(rounds / clock, busy / clock, read)


def longest(*times: float) -> float:
    """The longest of concurrent activities plus a share of the others, since they overlap imperfectly."""
    return sum(each**4 for each in times) ** 0.25


@lru_cache(maxsize=4096)
def best_of(x: Problem) -> tuple[Tiles | Few, float]:
    """The plan that is predicted to be the fastest, and its time in microseconds."""
    plan = min(candidates(x), key=lambda each: predicted_us(each, x))
    return plan, predicted_us(plan, x)


def best_tiles(x: Problem, parts: int) -> list[Tile]:
    """Tiles by predicted time: the fastest one for short products, and others that may be as fast for long ones."""
    times = {tile: predicted_us(Tiles(tile, parts, False), x) for tile in TILES}
    least = min(times.values())
    near = sorted((tile for tile in TILES if times[tile] <= NEAR * least), key=times.__getitem__)
    return near[: TIMED if least >= LONG_US else 1]
