"""Chooses a matmul's plan from a short list by properties of the device alone. The fitted model is compared with it.

The list has a few configurations of each kernel. A plan's time is estimated by the roofline of the device: the larger
of the time of the waves of blocks, each limited by the products or the loads of its steps, and of the traffic of device
memory. Besides the device's rates the estimate uses the time of a launch, the latency of device memory, and the waits
of kernels that load by threads.
"""

from __future__ import annotations

from cuda_ref.matmul import _model_tf32_float8 as other
from cuda_ref.matmul import _tiles as tiles
from cuda_ref.matmul._model_tf32_float8 import Problem as OtherProblem
from cuda_ref.matmul._narrow_plan import divide
from cuda_ref.matmul._rates import H200_CLOCK_KHZ, H200_DRAM_BYTES_PER_US, Rates
from cuda_ref.matmul._tiles import Plan, Problem, cdiv

CONFIGURATIONS = {
    "wgmma": (0, 1, 2, 3),
    "wgmma16": (2, 3),
    "mma": (0, 1),
    "stream": (0, 2, 3),
    "skinny": (0, 1),
    "short": (0, 2, 5, 6, 7, 8, 9, 11, 13),
    "narrow": (0, 1),
}
"""Kernels of 16 bits with their tiles in the list. The list has all tiles of other kernels, and all split-K factors."""
LAUNCH_US, LATENCY_US = 1.5, 0.65
L2_BYTES_PER_CLOCK, PRODUCTS_PER_CLOCK, MMA_PRODUCTS_PER_CLOCK = 64, 2048, 128
"""Peak rates of a multiprocessor; mma.cu loads each element by threads, which bound its products."""
STORES_PER_CLOCK = 2
"""Elements that a multiprocessor stores per clock in rows that TMA cannot store."""
REACHED = 0.8
"""Share of a peak rate that kernels reach."""
DIVISION_US = 2.0
"""Time of the launch that adds the parts, or that copies an operand for TMA."""


def is_listed(plan: Plan) -> bool:
    """Return True for a plan of the list. In tf32 and float8 all are."""
    indices = CONFIGURATIONS.get(plan.kernel)
    return indices is None or plan.tile in indices


def estimated_us(plan: Plan, x: Problem | OtherProblem, rates: Rates) -> float:
    """The estimated time on a device."""
    clocks, dram = H200_CLOCK_KHZ / 1000 * rates.clock, REACHED * H200_DRAM_BYTES_PER_US * rates.dram
    return _16_bits_us(plan, x, clocks, dram) if isinstance(x, Problem) else _other_us(plan, x, clocks, dram)


def _16_bits_us(plan: Plan, x: Problem, clocks: float, dram: float) -> float:
    memory, sms = 2 * (x.M * x.K + x.K * x.N + x.M * x.N) / dram, x.multiprocessors
    copied = 4 * (x.a_copied * x.M * x.K + x.b_copied * x.K * x.N) / dram
    if plan.kernel == "narrow":
        exists = divide(x.M, x.N, x.K, plan.tile, sms) is not None
        return 3 * LAUNCH_US + memory * (1 if x.K % 8 == 0 else 2) if exists else float("inf")
    if plan.kernel == "short":
        return LAUNCH_US / 2 + max(_short_us(plan, x, clocks), memory)
    if plan.kernel == "stream":
        blocks = tiles.stream_blocks(x, plan.tile) * plan.parts
        steps = cdiv(x.K, tiles.STREAM_TERMS * plan.parts << plan.tile)
        busy = cdiv(blocks, 2 * sms) * LATENCY_US * (1 + steps * min(2, cdiv(blocks, sms)))
        return LAUNCH_US + (1 + 0.1 * plan.parts) * (plan.parts > 1) + max(busy, memory)
    if plan.kernel == "skinny":
        steps = cdiv(cdiv(x.K, tiles.SKINNY_TERMS), plan.parts)
        waves = cdiv(cdiv(x.N, tiles.SKINNY_COLUMNS[plan.tile]) * plan.parts, 2 * sms)
        us = LAUNCH_US + waves * (LATENCY_US + steps * LATENCY_US / 4)
        return max(us, memory) + (1 + 0.1 * plan.parts) * (plan.parts > 1) + DIVISION_US * (x.a_copied or x.a_across_k)
    tile = tiles.tile_of(plan)
    blocks, steps = tiles.blocks_of(tile, x) * plan.parts, cdiv(cdiv(x.K, tile.K), plan.parts)
    together = tile.cluster * tile.beside
    if plan.kernel == "mma":
        most, shifts = cdiv(blocks, sms), 1 + 2 * (x.a_copied + x.b_copied)
        products = tile.M * tile.N * tile.K / (MMA_PRODUCTS_PER_CLOCK * clocks)
        busy = steps * max(cdiv(most, tile.resident) * LATENCY_US / 4 * shifts, most * products)
        return 2 * LAUNCH_US + (plan.parts > 1) / 2 + max(busy, memory)
    loaded = 2 * tile.K * (tile.M * (1 + x.a_split) / tile.beside + tile.N * (1 + x.b_split) / tile.cluster)
    products = tile.K * max(tile.M, 64) * tile.N / (PRODUCTS_PER_CLOCK * clocks)
    step = max(products / REACHED, loaded / (L2_BYTES_PER_CLOCK * clocks), 0.1)
    stored = tile.M * tile.N / (STORES_PER_CLOCK * clocks) if x.N % 8 != 0 else 0.0
    busy = cdiv(blocks // together, max(1, sms // together)) * (LATENCY_US + steps * step + stored)
    us = LAUNCH_US * (1 + (together > 1) / 2) + max(busy, memory)
    if plan.parts > 1:
        us += DIVISION_US + 8 * blocks * tile.M * tile.N / dram
    return us + (DIVISION_US + copied if x.a_copied or x.b_copied else 0.0)


def _short_us(plan: Plan, x: Problem, clocks: float) -> float:
    """The larger of successive waits for memory and of the time of a multiprocessor's loads, 4 warps per clock."""
    if plan.tile in tiles.SHORT_GRIDS:
        rows = tiles.SHORT_GRIDS[plan.tile]
        warps = cdiv(cdiv(x.M, rows) * cdiv(x.N, rows), 32 * x.multiprocessors)
        return max(cdiv(x.K, 16 // rows) * LATENCY_US, warps * x.K * 2 * rows * 8 / clocks)
    if plan.tile in tiles.SHORT_TILES:
        across = tiles.SHORT_TILES[plan.tile]
        rows, columns = 1024 // across, 4 * across
        turns = cdiv((rows + columns) * x.K, 4096)
        waves = cdiv(cdiv(x.M, rows) * cdiv(x.N, columns), x.multiprocessors)
        return 2 * LATENCY_US + turns * LATENCY_US + waves * (LATENCY_US + x.K * 70 / clocks)
    lanes = tiles.SHORT_BLOCKS.get(plan.tile, plan.tile)
    turns, warps = cdiv(x.K, tiles.SHORT_TERMS << lanes), cdiv(x.M * x.N << lanes, 32 * x.multiprocessors)
    return max(turns * LATENCY_US, warps * turns * tiles.SHORT_TERMS * 16 / clocks)


def _other_us(plan: Plan, x: OtherProblem, clocks: float, dram: float) -> float:
    """The estimated time in tf32 and float8."""
    read, written, rate = (4, 4, PRODUCTS_PER_CLOCK // 2) if x.kernel == "wgmma32" else (1, 2, 2 * PRODUCTS_PER_CLOCK)
    memory = (read * (x.M * x.K + x.K * x.N) + written * x.M * x.N) / dram
    (few, size), sms = sorted((x.M, x.N)), x.multiprocessors
    if plan.kernel == "short8":
        return LAUNCH_US + max(x.K / 16 * LATENCY_US / 4, memory)
    if plan.kernel == "few32":
        steps = cdiv(x.K, other.FEW_TERMS * other.FEW_WARPS * plan.parts)
        busy = cdiv(cdiv(size, other.FEW_STRIP) * plan.parts, 2 * sms) * LATENCY_US * (1 + steps * (1 + few / 16))
        return LAUNCH_US + (plan.parts > 1) + max(busy, memory)
    if plan.kernel == "skinny8":
        waves = cdiv(cdiv(size, tiles.SKINNY_COLUMNS[plan.tile]) * plan.parts, 2 * sms)
        busy = waves * LATENCY_US * (1 + cdiv(cdiv(x.K, other.SKINNY_TERMS), plan.parts) / 4)
        return LAUNCH_US + (1 + 0.1 * plan.parts) * (plan.parts > 1) + max(busy, memory)
    tile = tiles.TILES[plan.kernel][plan.tile]
    columns, rows = cdiv(x.N, tile.N), cdiv(x.M, tile.M * tile.cluster)
    steps = cdiv(cdiv(x.K, tile.K), plan.parts)
    loaded = read * tile.K * (tile.M + tile.N / tile.cluster)
    products = tile.M * tile.N * tile.K / (REACHED * rate * clocks)
    step = max(products, loaded / (L2_BYTES_PER_CLOCK * clocks), 0.1)
    busy = cdiv(columns * rows * plan.parts, max(1, sms // tile.cluster)) * (LATENCY_US + steps * step)
    us = LAUNCH_US * (1 + (tile.cluster > 1) / 2) + max(busy, memory) + (DIVISION_US if x.copied else 0.0)
    sums = 8 * columns * rows * tile.cluster * plan.parts * tile.M * tile.N
    return us + (DIVISION_US + sums / dram if plan.parts > 1 else 0.0)
