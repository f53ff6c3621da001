"""Predicted times of the plans of a matmul in 16 bits on Hopper (docs/lab/matmul.md; fit: validation/matmul_model.py).

Blocks run in rounds over the multiprocessors; all rounds take no less than the traffic of device memory and of L2."""

from functools import lru_cache
from math import gcd
from typing import NamedTuple

import torch

from cuda_ref.hopper.pitched import LINE
from cuda_ref.matmul import _tiles as tiles
from cuda_ref.matmul._narrow_plan import SHARED_BYTES, divide
from cuda_ref.matmul._rates import Rates, rates_of, scaled
from cuda_ref.matmul._tiles import Plan, Problem, Tile, blocks_of, cdiv, stream_blocks, tile_of


class Costs(NamedTuple):
    """Constants of the model. `us` is microseconds, `sm` a multiprocessor; `scaled` gives those of other devices."""

    dram_bytes_per_us: float = 4.072e06
    dram_copy_bytes_per_us: float = 4.814e06  # copies for TMA and sums of parts
    sm_l2_bytes_per_us: float = 1.083e05  # TMA loads, if all multiprocessors load
    sm_load_bytes_per_us: float = 2.521e05  # TMA loads of one multiprocessor
    sm_wgmma_products_per_us: float = 3.654e06
    request_us: float = 0.00149  # a request for a cache line that many blocks read
    copy_us: float = 2.114  # launch of the copy for TMA
    add_us: float = 1.144  # launch of the addition of parts
    add_part_us: float = 0.04977
    wgmma_launch_us: float = 1.715
    wgmma_cluster_us: float = 1.832
    wgmma_block_us: float = 0.1878  # before a block's first step and after its last
    wgmma_step_us: float = 0.0966  # least time of a step
    wgmma_store_us: float = 5.892e-05  # per element
    sm_odd_stores_per_us: float = 4363  # elements whose rows TMA cannot store
    beyond_share: float = 0.3253  # extra step time, times the share of the tiles' rows that lie beyond the output
    fitted_launch_us: float = 3.252
    fitted_step_us: float = 0.0173  # added to the products of a step
    fitted_cluster_step_us: float = 0.04757  # the same, if blocks of a cluster share loads
    mma_launch_us: float = 2.477
    mma_cluster_us: float = 0.5659
    mma_step_us: float = 0.552  # a step of a block alone on its multiprocessor
    mma_shift_share: float = 1.153  # extra time of a step for each operand at odd addresses
    sm_mma_copies_per_us: float = 2.437e04  # elements to shared memory
    sm_mma_stores_per_us: float = 5352  # elements
    sm_mma_l2_bytes_per_us: float = 3.702e04
    stream_launch_us: float = 2.555
    stream_cluster_us: float = 0.6996
    stream_part_us: float = 0.05428
    stream_block_us: float = 0.246
    stream_step_us: float = 0.929
    stream_groups_share: float = 0.4559  # extra step time for two groups of eight rows or columns
    stream_shift_share: float = 0.5727  # extra step time if the larger operand is at odd addresses
    skinny_copy_us: float = 2.063  # launch of the copy of a
    skinny_launch_us: float = 0.8005
    skinny_cluster_us: float = 0.5119
    skinny_part_us: float = 0.1325
    skinny_block_us: float = 2.331
    skinny_step_us: float = 0.1514
    short_launch_us: float = 0.7257
    short_turn_us: float = 0.8801  # one wait for memory
    short_load_us: float = 0.002958  # one load by a warp
    short_sector_us: float = 0.0002969  # extra time for each 32 bytes of another row of b
    short_element_us: float = 0.03114  # per element of a thread's grid
    short_tile_launch_us: float = 2.238
    short_tile_term_us: float = 0.02191
    short_tile_store_us: float = 0.7833
    narrow_launch_us: float = 5.44
    narrow_step_us: float = 0.1032  # 16 terms of a warp
    narrow_odd_share: float = 1.993  # multiple of the above, if rows do not begin at multiples of 16 bytes
    narrow_mma_us: float = 0.02689  # 8 columns of a warp's tile


H200 = Costs()
FITTED = {"NVIDIA H200": H200}  # by the name of the device


@lru_cache
def costs_of(device: torch.device | Rates | None) -> Costs:
    """The constants fitted to this device, or else those of the H200 with rates in proportion."""
    rates = device if isinstance(device, Rates) else rates_of(device)
    return FITTED.get(rates.name) or scaled(H200, rates)


def predicted_us(plan: Plan, x: Problem, costs: Costs = H200) -> float:
    """The predicted time of a plan."""
    memory = 2 * (x.M * x.K + x.K * x.N + x.M * x.N) / costs.dram_bytes_per_us
    model = {"mma": _mma_us, "stream": _stream_us, "short": _short_us, "narrow": _narrow_us, "skinny": _skinny_us}
    return model.get(plan.kernel, _wgmma_us)(plan, x, memory, costs)


def longest(*times: float) -> float:
    """The longest of concurrent activities plus a share of the others, since they overlap imperfectly."""
    return sum(each**4 for each in times) ** 0.25


def _wgmma_us(plan: Plan, x: Problem, memory: float, c: Costs) -> float:
    """Copies and launch, plus the longest of rounds and traffic, plus the addition of parts."""
    tile, fitted = tile_of(plan), plan.kernel == "fitted"
    together = tile.cluster * tile.beside
    blocks, steps = blocks_of(tile, x) * plan.parts, cdiv(cdiv(x.K, tile.K), plan.parts)
    # Some GPCs have no room for a cluster of four blocks.
    rounds = cdiv(blocks // together, max(1, x.multiprocessors // together - 3 * (together == 4)))
    rows = cdiv(tile.M, 64) * 64 if fitted and x.a_across_k else tile.M  # rows that TMA loads
    loaded = 2 * tile.K * (rows * (1 + x.a_split) / tile.beside + tile.N * (1 + x.b_split) / tile.cluster)
    products = max(tile.M, 64) * tile.N * tile.K / c.sm_wgmma_products_per_us
    waits = c.fitted_step_us + c.fitted_cluster_step_us * (together > 1)
    own = waits + products if fitted else longest(c.wgmma_step_us, products)
    beyond = c.beyond_share * (1 - x.M / (cdiv(x.M, tile.M) * tile.M))
    step = longest(own, _requests_us(tile, x, c), loaded / c.sm_load_bytes_per_us) * (1 + beyond)
    stored = tile.M * tile.N * (c.wgmma_store_us + (x.N % 8 != 0) / c.sm_odd_stores_per_us)
    busy = rounds * (c.wgmma_block_us + steps * step + stored)
    us = c.fitted_launch_us if fitted else c.wgmma_launch_us + c.wgmma_cluster_us * (together > 1)
    us += longest(busy, memory, blocks * steps * loaded / (c.sm_l2_bytes_per_us * x.multiprocessors))
    if x.a_copied or x.b_copied:
        us += c.copy_us + 4 * (x.a_copied * x.M * x.K + x.b_copied * x.K * x.N) / c.dram_copy_bytes_per_us
    if plan.parts > 1:
        us += c.add_us + c.add_part_us * plan.parts + 8 * blocks * tile.M * tile.N / c.dram_copy_bytes_per_us
    return us


def _requests_us(tile: Tile, x: Problem, c: Costs) -> float:
    """Extra time of blocks that read the same cache line: they wait for each other, once per row in the line."""
    below, beside = cdiv(x.M, tile.M * tile.cluster), cdiv(x.N, tile.N * tile.beside)
    of_b = min(below, x.multiprocessors // tile.cluster) * _rows_of_a_line(x.K if x.b_along_k else x.N)
    of_a = min(beside, x.multiprocessors // tile.beside) * _rows_of_a_line(x.M if x.a_across_k else x.K)
    return max(of_a, of_b) * c.request_us


def _rows_of_a_line(elements: int) -> float:
    """Average number of rows of this length in a line of the L2 cache."""
    return 1.0 if elements >= LINE else (LINE + 2 * elements - gcd(LINE, 2 * elements)) / (2 * elements)


def _mma_us(plan: Plan, x: Problem, memory: float, c: Costs) -> float:
    """Launch, plus the longest of rounds of resident blocks, a multiprocessor's work, and traffic."""
    tile = tile_of(plan)
    blocks, steps = blocks_of(tile, x) * plan.parts, cdiv(cdiv(x.K, tile.K), plan.parts)
    shared = min(steps, tile.stages) * 9 * tile.K * (tile.M + tile.N) // 4 + 1024
    most, shifts = cdiv(blocks, x.multiprocessors), 1 + c.mma_shift_share * (x.a_copied + x.b_copied)
    alone = cdiv(most, min(tile.resident, SHARED_BYTES // shared)) * steps * c.mma_step_us * shifts
    copies = (tile.M + tile.N) * tile.K / c.sm_mma_copies_per_us
    busy = most * (steps * copies * shifts + tile.M * tile.N / c.sm_mma_stores_per_us)
    loaded = 2 * blocks * steps * tile.K * (tile.M + tile.N) / (c.sm_mma_l2_bytes_per_us * x.multiprocessors)
    return c.mma_launch_us + c.mma_cluster_us * (plan.parts > 1) + longest(alone, busy, memory, loaded)


def _stream_us(plan: Plan, x: Problem, memory: float, c: Costs) -> float:
    """Launch, plus the longer of reading memory and rounds of two blocks per multiprocessor."""
    blocks, steps = stream_blocks(x, plan.tile) * plan.parts, cdiv(x.K, tiles.STREAM_TERMS * plan.parts << plan.tile)
    shifts = 1 + c.stream_shift_share * (x.a_copied if x.M > x.N else x.b_copied)
    work = min(2, cdiv(blocks, x.multiprocessors)) * (1 + c.stream_groups_share * (min(x.M, x.N) > 8))
    step = longest(1, work) * c.stream_step_us * shifts
    busy = cdiv(blocks, 2 * x.multiprocessors) * (c.stream_block_us + steps * step)
    joined = (c.stream_cluster_us + c.stream_part_us * plan.parts) * (plan.parts > 1)
    return c.stream_launch_us + joined + longest(busy, memory * shifts)


def _skinny_us(plan: Plan, x: Problem, memory: float, c: Costs) -> float:
    """A copy unless a is contiguous along k, launch, plus the longer of rounds of clusters and traffic."""
    columns = tiles.SKINNY_COLUMNS[plan.tile]
    blocks, steps = cdiv(x.N, columns), cdiv(x.K, tiles.SKINNY_TERMS)
    loaded = 2 * tiles.SKINNY_TERMS * (columns * (1 + x.b_split) + max(16, x.M) * (1 + x.a_split))
    rounds = cdiv(blocks, max(1, tiles.SKINNY_CLUSTERS[plan.parts] * x.multiprocessors // 132))
    busy = rounds * (c.skinny_block_us + cdiv(steps, plan.parts) * c.skinny_step_us)
    us = c.skinny_launch_us + (c.skinny_cluster_us + plan.parts * c.skinny_part_us) * (plan.parts > 1)
    us += longest(busy, memory, blocks * steps * loaded / (c.sm_l2_bytes_per_us * x.multiprocessors))
    return us + (c.skinny_copy_us + 4 * x.M * x.K / c.dram_copy_bytes_per_us) * (x.a_copied or x.a_across_k)


def _short_us(plan: Plan, x: Problem, memory: float, c: Costs) -> float:
    """Launch, plus the longest of successive waits for memory, a multiprocessor's loads, and traffic."""
    if plan.tile in tiles.SHORT_TILES:
        across = tiles.SHORT_TILES[plan.tile]
        rows, columns = 1024 // across, 4 * across
        most = cdiv(cdiv(x.M, rows) * cdiv(x.N, columns), x.multiprocessors)
        busy = most * (x.K * c.short_tile_term_us + c.short_tile_store_us)
        return c.short_tile_launch_us + cdiv((rows + columns) * x.K, 4096) * c.short_turn_us + longest(busy, memory)
    if plan.tile in tiles.SHORT_GRIDS:
        rows = tiles.SHORT_GRIDS[plan.tile]
        beside = min(32, 2 ** (cdiv(x.N, rows) - 1).bit_length())
        warps = cdiv(cdiv(x.N, rows * beside) * cdiv(x.M, rows * 32 // beside), x.multiprocessors)
        waits = cdiv(x.K, 16 // rows) * c.short_turn_us + rows * rows * c.short_element_us
        return c.short_launch_us + longest(waits, warps * x.K * 2 * rows * c.short_load_us, memory)
    lanes = tiles.SHORT_BLOCKS.get(plan.tile, plan.tile)
    turns, warps = cdiv(x.K, tiles.SHORT_TERMS << lanes), cdiv(x.M * x.N << lanes, 32 * x.multiprocessors)
    rows_of_b = 0.0 if x.b_along_k else min(32, 2**lanes) * min(1, x.N / 16)
    loads = warps * turns * tiles.SHORT_TERMS * (2 * c.short_load_us + c.short_sector_us * rows_of_b)
    return c.short_launch_us + longest(turns * c.short_turn_us, loads, memory)


def _narrow_us(plan: Plan, x: Problem, memory: float, c: Costs) -> float:
    """Launch and the load of b, plus the longer of a warp's work and traffic."""
    division = divide(x.M, x.N, x.K, plan.tile, x.multiprocessors)
    assert division is not None, "`candidates` has a division for each plan"
    groups = cdiv(cdiv(x.N, division.tile_columns), division.sharing)
    rounds = cdiv(cdiv(division.rows, division.tile_rows) * division.sharing, division.warps)
    reads, mmas = 1.0 if x.K % 8 == 0 else c.narrow_odd_share, cdiv(division.tile_rows, 16) * division.tile_columns // 8
    busy = rounds * cdiv(x.K, 16) * groups * (c.narrow_step_us * reads + mmas * c.narrow_mma_us)
    return c.narrow_launch_us + longest(busy, memory)
