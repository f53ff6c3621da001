"""Plans of a matmul in tf32 and float8 on Hopper, and their times by the model of _model.py with other constants."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from cuda_ref.hopper.layouts import find_row_layout, operand_layouts
from cuda_ref.hopper.pitched import LINE
from cuda_ref.matmul import _model
from cuda_ref.matmul._few32 import quad_layout
from cuda_ref.matmul._model import longest
from cuda_ref.matmul._plan import multiprocessors
from cuda_ref.matmul._rates import Rates, rates_of, scaled
from cuda_ref.matmul._tiles import PARTS, SKINNY_COLUMNS, SKINNY_M, TILES, Plan, Tile, blocks_of, cdiv
from cuda_ref.matmul._tiles import Problem as Problem16Bits

FEW, FEW_BY_WORDS = 8, 32
"""Largest number of rows or columns of "few32", by 16 bytes and word by word: other plans copy the larger operand."""
FEW_STRIP, FEW_TERMS, FEW_WARPS, FEW_PARTS = 32, 32, 8, (1, 2, 4, 8)
"""Elements of the larger operand, and terms, per step of a warp; warps of a block, and blocks, that divide k."""
SKINNY_TERMS = 128
"""Terms per step of "skinny8": as many bytes as a step of "skinny"."""
SHORT_FEW, SHORT_TERMS = 8, 64
"""Most rows or columns of "short8", and most terms; its terms are a multiple of 16."""
PROMOTED_TILES = (0, 1, 2, 4)
"""Tiles of "wgmma8" whose promoted sums fit in registers."""


class Problem(NamedTuple):
    """All that the choice of a plan depends on, besides the device's rates."""

    kernel: str
    """"wgmma32" or "wgmma8"."""
    M: int
    """Sizes of the product that the kernel computes. In tf32 this may be the transpose."""
    N: int
    K: int
    copied: int
    """Elements of operands that TMA cannot read."""
    multiprocessors: int
    few: bool = False
    """True if "few32" can compute it."""
    promoted: bool = False
    words: bool = False
    """True if "few32" reads its larger operand by 4 bytes, because its rows are not aligned to 16."""


class Costs(NamedTuple):
    """Constants of the model. `us` is microseconds, `sm` a multiprocessor; `scaled` gives those of other devices."""

    dram_read_bytes_per_us: float
    dram_write_bytes_per_us: float
    dram_copy_bytes_per_us: float  # copies for TMA and sums of parts
    sm_l2_bytes_per_us: float  # TMA loads
    sm_products_per_us: float
    launch_us: float
    block_us: float  # before a block's first step and after its last
    step_us: float  # added to the products of a step
    store_us: float  # per element
    add_us: float  # launch of the addition of parts
    copy_us: float = 2.0  # launch of the copy for TMA
    few_launch_us: float = 2.82
    few_cluster_us: float = 0.929
    few_step_us: float = 0.796
    few_row_us: float = 0.0586  # extra time per row
    few_words_share: float = 1.5  # multiple of the time of reading, word by word: assumed, not fitted
    short_launch_us: float = 1.9
    short_term_us: float = 0.015
    skinny_launch_us: float = 0.06694  # added to the launch in 16 bits
    skinny_share: float = 1.045  # multiple of the time in 16 bits
    skinny_rows_us: float = 1.207  # extra time for 17 to 32 rows


H200 = {
    "wgmma32": Costs(
        dram_read_bytes_per_us=1.703e+07, dram_write_bytes_per_us=8.484e+06, dram_copy_bytes_per_us=4.617e+06,
        sm_l2_bytes_per_us=9.028e+04, sm_products_per_us=2.098e+06, launch_us=3.075, block_us=0.151, step_us=0.1075,
        store_us=9.24e-05, add_us=0.575, copy_us=2, few_launch_us=2.686, few_cluster_us=0.18, few_step_us=0.9552,
        few_row_us=0.08037,
    ),
    "wgmma8": Costs(
        dram_read_bytes_per_us=3.288e+06, dram_write_bytes_per_us=2.499e+07, dram_copy_bytes_per_us=2.22e+06,
        sm_l2_bytes_per_us=7.037e+04, sm_products_per_us=7.84e+06, launch_us=1.112, block_us=0.6083, step_us=0.1143,
        store_us=4.766e-05, add_us=2.114, copy_us=2, short_launch_us=1.9, short_term_us=0.015,
        skinny_launch_us=0.06694, skinny_share=1.045, skinny_rows_us=1.207,
    ),
}  # fmt: skip
FITTED = {"NVIDIA H200": H200}


def candidates(x: Problem) -> Iterator[Plan]:
    """The plans that may be the fastest: parts that the device has blocks for, with at least one step each."""
    for index, tile in enumerate(TILES[x.kernel]):
        if x.promoted and index not in PROMOTED_TILES:
            continue
        blocks, steps = _blocks(tile, x), cdiv(x.K, tile.K)
        for parts in PARTS["wgmma"]:
            if parts == 1 or (parts <= steps and blocks * parts < 3 * x.multiprocessors):
                yield Plan(x.kernel, index, parts)
    if x.kernel == "wgmma8" and min(x.M, x.N) <= SKINNY_M:
        for index, columns in enumerate(SKINNY_COLUMNS):
            for parts in PARTS["skinny"]:
                blocks = cdiv(max(x.M, x.N), columns) * parts
                if parts == 1 or (parts <= cdiv(x.K, SKINNY_TERMS) and blocks < 6 * x.multiprocessors):
                    yield Plan("skinny8", index, parts)
    if x.kernel == "wgmma8" and min(x.M, x.N) <= SHORT_FEW and x.K <= SHORT_TERMS and x.K % 16 == 0 and not x.copied:
        yield Plan("short8", 0, 1)
    if x.few:
        for parts in FEW_PARTS:
            if parts == 1 or parts * FEW_WARPS < 2 * cdiv(x.K, FEW_TERMS):
                yield Plan("few32", 0, parts)


def _blocks(tile: Tile, x: Problem) -> int:
    return blocks_of(tile, Problem16Bits(x.M, x.N, x.K, False, False, 0))


@lru_cache
def costs_of(device: torch.device | Rates | None) -> dict[str, Costs]:
    """By kernel, the constants fitted to this device, or else those of the H200 with rates in proportion."""
    rates = device if isinstance(device, Rates) else rates_of(device)
    return FITTED.get(rates.name) or {kernel: scaled(costs, rates) for kernel, costs in H200.items()}


def predicted_us(plan: Plan, x: Problem, c: Costs | None = None, skinny: _model.Costs = _model.H200) -> float:
    """The predicted time of a plan. c, skinny: constants of its kernel and of 16 bits; by default those of an H200."""
    read, written = (4, 4) if x.kernel == "wgmma32" else (1, 2)  # bytes of an element
    c = c or H200[x.kernel]
    memory = read * (x.M * x.K + x.K * x.N) / c.dram_read_bytes_per_us + written * x.M * x.N / c.dram_write_bytes_per_us
    copied = c.copy_us + 2 * read * x.copied / c.dram_copy_bytes_per_us if x.copied else 0.0
    if plan.kernel == "few32":
        return _few_us(plan, x, memory, c)
    if plan.kernel == "short8":
        return c.short_launch_us + longest(x.K * c.short_term_us, memory)
    if plan.kernel == "skinny8":
        return copied + _skinny_us(plan, x, c, skinny)
    tile = TILES[plan.kernel][plan.tile]
    blocks, steps = _blocks(tile, x) * plan.parts, cdiv(cdiv(x.K, tile.K), plan.parts)
    rounds = cdiv(blocks // tile.cluster, max(1, x.multiprocessors // tile.cluster))
    alone = min(steps, tile.stages)  # steps before a block's neighbour in the cluster loads for it
    loaded = read * blocks * tile.K * (steps * tile.M + (alone + (steps - alone) / tile.cluster) * tile.N)
    step = c.step_us + tile.M * tile.N * tile.K / c.sm_products_per_us
    busy = rounds * (c.block_us + steps * step + tile.M * tile.N * c.store_us)
    us = copied + c.launch_us + longest(busy, memory, loaded / (c.sm_l2_bytes_per_us * x.multiprocessors))
    if plan.parts > 1:
        us += c.add_us + 8 * blocks * tile.M * tile.N / c.dram_copy_bytes_per_us
    return us


def _skinny_us(plan: Plan, x: Problem, c: Costs, skinny: _model.Costs) -> float:
    """The 16-bit time for half as many terms, which are the same number of bytes, with corrections."""
    (few, size), straddles = sorted((x.M, x.N)), x.K % LINE != 0
    halves = Problem16Bits(
        few, size, cdiv(x.K, 2), False, False, x.multiprocessors, a_split=straddles, b_split=straddles
    )
    us = _model.predicted_us(Plan("skinny", plan.tile, plan.parts), halves, skinny)
    return c.skinny_launch_us + c.skinny_share * us + c.skinny_rows_us * (few > SKINNY_M // 2)


def _few_us(plan: Plan, x: Problem, memory: float, c: Costs) -> float:
    """Launch, plus the longer of reading memory and the steps of a warp, with two blocks per multiprocessor."""
    few, size = sorted((x.M, x.N))
    blocks = cdiv(size, FEW_STRIP) * plan.parts
    steps = cdiv(x.K, FEW_TERMS * FEW_WARPS * plan.parts)
    busy = max(1.0, blocks / (2 * x.multiprocessors)) * steps * (c.few_step_us + c.few_row_us * few)
    read = memory * c.few_words_share if x.words else memory
    return c.few_launch_us + c.few_cluster_us * (plan.parts > 1) + longest(busy, read)


@lru_cache(maxsize=4096)
def best_of(x: Problem, kernels: tuple[str, ...] | None = None, device: torch.device | None = None) -> Plan:
    """The plan, of these kernels, with the least predicted time on a device."""
    plans = (each for each in candidates(x) if kernels is None or each.kernel in kernels)
    costs, skinny = costs_of(device)[x.kernel], _model.costs_of(device)
    return min(plans, key=lambda each: predicted_us(each, x, costs, skinny))


def best_plan(a: Tensor, b: Tensor, precision: str, kernels: tuple[str, ...] | None = None) -> Plan:
    """The plan for two operands, of float32 in tf32 or of float8. On a CPU the first tile of wgmma."""
    x = problem_of(a, b, precision)
    return best_of(x, kernels, a.device) if a.is_cuda else Plan(x.kernel, 0, 1)


def problem_of(a: Tensor, b: Tensor, precision: str) -> Problem:
    """All that the choice of a plan for two operands depends on."""
    (M, K), N = a.shape, b.shape[1]
    tf32 = a.dtype == torch.float32
    found, across = operand_layouts(a, b)
    stream = b.t() if M <= N else a
    words = tf32 and quad_layout(stream) is None
    few = tf32 and min(M, N) <= (FEW_BY_WORDS if words else FEW) and find_row_layout(stream, 1) is not None
    copied = (found[0] is None) * M * K + (found[1] is None) * K * N
    sizes = (N, M) if across[1] else (M, N)
    processors = multiprocessors(a.device) if a.is_cuda else 1
    return Problem(
        "wgmma32" if tf32 else "wgmma8", *sizes, K, copied, processors, few, precision == "promoted",
        few and words,
    )  # fmt: skip
