"""The time of a plan of a matmul in 16 bits on Hopper, by a model of few constants (docs/lab/matmul_shapes.md).

A plan's work goes in rounds of blocks over the multiprocessors. The time of a round is that of its steps of k, which is
bound by latency if a multiprocessor has few blocks, by the tensor cores if it has many, or by the loads of the
multiprocessor. All rounds together take no less than the traffic of device memory and of the L2 cache.
"""

from math import exp, gcd
from typing import NamedTuple

from cuda_ref.hopper.pitched import LINE
from cuda_ref.matmul._narrow_plan import SHARED_BYTES, divide
from cuda_ref.matmul._tiles import (
    SHORT_BLOCKS,
    SHORT_GRIDS,
    SHORT_TERMS,
    SHORT_TILES,
    SKINNY_COLUMNS,
    SKINNY_TERMS,
    STREAM_FEW,
    STREAM_TERMS,
    Plan,
    Problem,
    Tile,
    blocks_of,
    count,
    stream_blocks,
    tile_of,
)

THROTTLED_US = 100.0
"""A product that takes so long lowers the clock."""


class Costs(NamedTuple):
    """Of an H200: microseconds, and bytes, elements or products in a microsecond."""

    memory: float = 4.318e6  # bytes read
    split: float = 0.14  # of the time to read rows by TMA more, if they begin within lines
    written: float = 2.566e6  # bytes written
    mma_launch: float = 2.864
    mma_block: float = 0.00125  # until the first step, and after the last one
    mma_rate: float = 6.116e7  # products of a multiprocessor
    mma_copy: float = 4.489e4  # elements that a multiprocessor copies to shared memory
    mma_shift: float = 2.403  # of a step's time more, for each operand at odd addresses
    mma_store: float = 5401  # elements
    mma_l2: float = 4.038e6
    cluster: float = 0.5206
    cluster_part: float = 0.0004435
    cluster_sums: float = 1.3e6  # bytes that a multiprocessor reads from others
    stream_launch: float = 1.804
    stream_cluster: float = 0.6871
    stream_part: float = 0.06923
    stream_block: float = 0.7305
    stream_step: float = 1.012
    stream_work: float = 1.008  # of two blocks of a multiprocessor
    stream_few: float = 0.403  # of that time more, for two groups of eight rows or columns
    stream_shift: float = 0.5138
    wgmma_launch: float = 1.74
    wgmma16_launch: float = 1.638
    wgmma_block: float = 0.3507
    wgmma_store: float = 3.802e-5  # of an element
    wgmma_cluster: float = 0.8648
    wgmma_load: float = 3.388e5  # bytes of whole lines that a multiprocessor loads
    wgmma_l2: float = 1.516e7  # and all of them
    wgmma_hot: float = 0.001575  # a request of a line
    wgmma_beyond: float = 0.2651  # of a step's time more, if all rows of a tile are beyond the output
    throttle: float = 0.107  # of the time of products more, if they take long: the clock falls
    fitted_launch: float = 2.672
    fitted_pair: float = 0.1608
    fitted_four: float = 0.01415
    fitted_block: float = 0.7937
    fitted_step: float = 0.07038
    fitted_product: float = 1.523e-5
    fitted_rows: float = 70.71  # fewer take as long
    short_launch: float = 0.8967
    short_turn: float = 0.6561
    short_load: float = 0.003331  # of a warp
    short_sector: float = 0.0001262  # of a warp more, for each 32 bytes of another row of b
    short_block: float = 0.5604
    short_element: float = 0.03706  # of a thread
    short_store: float = 0.001206
    tile_launch: float = 2.294
    tile_term: float = 0.03678
    tile_store: float = 0.7368
    narrow_launch: float = 3.791
    narrow_load: float = 3320  # elements of b
    narrow_turn: float = 0.692  # of a warp: a stage's latency, of which the ring hides most
    narrow_step: float = 0.05286  # of a warp, for 16 terms
    narrow_pairs: float = 2.703  # times that, if terms are read in pairs or one by one
    narrow_elements: float = 3.729
    narrow_mma: float = 0.01845  # of a warp, for a tile of 8 columns
    narrow_shared: float = 1.539e5  # bytes of b that a multiprocessor reads from shared memory
    skinny_launch: float = 1.799
    skinny_block: float = 0.9766
    skinny_step: float = 0.1464
    skinny_load: float = 5.678e5  # bytes of a multiprocessor, by one of its two blocks
    skinny_pieces: float = 0.2254  # of the time of memory more, if rows are read in pieces of 64 columns
    skinny_cluster: float = 0.7904
    skinny_part: float = 0.1326
    skinny_copy: float = 2.155
    copy: float = 2.289
    add: float = 1.802
    add_part: float = 0.02
    store: float = 3885  # elements of a multiprocessor that are not stored by TMA
    scattered: float = 4.882e6  # bytes of copies, and of parts


COSTS = Costs()


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan."""
    memory = 2 * (x.M * x.K + x.K * x.N) / COSTS.memory + 2 * x.M * x.N / COSTS.written
    twice = 2 * (x.a_split * x.M * x.K + x.b_split * x.K * x.N) / COSTS.memory
    by_tma = memory + COSTS.split * twice
    if plan.kernel == "skinny":
        return _skinny_us(plan, x, by_tma)
    if plan.kernel == "stream":
        return _stream_us(plan, x, memory)
    if plan.kernel == "short":
        return _short_us(plan, x, memory)
    if plan.kernel == "narrow":
        return _narrow_us(plan, x, memory)
    tile = tile_of(plan)
    if plan.kernel == "mma":
        return _mma_us(plan, tile, count(count(x.K, tile.K), plan.parts), blocks_of(tile, x) * plan.parts, memory, x)
    return _wgmma_us(plan, tile, by_tma, x)


def _mma_us(plan: Plan, tile: Tile, steps: int, blocks: int, memory: float, x: Problem) -> float:
    """Launch, and the longest of traffic, of rounds of resident blocks, and of a multiprocessor's work."""
    resident = min(
        tile.resident, SHARED_BYTES // (min(steps, tile.stages) * 9 * tile.K * (tile.M + tile.N) // 4 + 1024)
    )
    most = count(blocks, x.multiprocessors)  # blocks of a multiprocessor
    shifts = 1 + COSTS.mma_shift * (x.a_copied + x.b_copied)
    alone = count(most, resident) * (COSTS.mma_block + steps * tile.step_us * shifts)
    copies = (tile.M + tile.N) * tile.K / COSTS.mma_copy
    busy = most * (
        steps * (tile.M * tile.N * tile.K / COSTS.mma_rate + copies * shifts) + tile.M * tile.N / COSTS.mma_store
    )
    loaded = 2 * blocks * steps * tile.K * (tile.M + tile.N)
    joined = 4 * most * tile.M * tile.N / COSTS.cluster_sums if plan.parts > 1 else 0.0
    return COSTS.mma_launch + _cluster_us(plan) + joined + longest(alone, busy, memory, loaded / COSTS.mma_l2)


def _stream_us(plan: Plan, x: Problem, memory: float) -> float:
    """Launch, and the longer of reading memory and rounds of two blocks a multiprocessor."""
    blocks, steps = stream_blocks(x, plan.tile) * plan.parts, count(x.K, STREAM_TERMS * plan.parts << plan.tile)
    shifts = 1 + COSTS.stream_shift * (x.a_copied if x.M > x.N else x.b_copied)
    groups = 1 + COSTS.stream_few * (min(x.M, x.N) > STREAM_FEW // 2)
    beside = min(2, count(blocks, x.multiprocessors))
    step_us = longest(COSTS.stream_step, beside * COSTS.stream_work * groups) * shifts
    busy = count(blocks, 2 * x.multiprocessors) * (COSTS.stream_block + steps * step_us)
    joined = COSTS.stream_cluster + COSTS.stream_part * plan.parts if plan.parts > 1 else 0.0
    return COSTS.stream_launch + joined + longest(busy, memory * shifts)


def _short_us(plan: Plan, x: Problem, memory: float) -> float:
    """Launch, turns that wait for memory one after the other, and the loads of a multiprocessor's warps."""
    if plan.tile in SHORT_GRIDS:
        return _short_grid_us(SHORT_GRIDS[plan.tile], x, memory)
    if plan.tile in SHORT_TILES:
        return _short_tile_us(SHORT_TILES[plan.tile], x, memory)
    lanes = SHORT_BLOCKS.get(plan.tile, plan.tile)
    turns = count(x.K, SHORT_TERMS << lanes)
    warps = count(count(x.M * x.N << lanes, 32), x.multiprocessors)
    rows = 0.0 if x.b_along_k else min(32, 2**lanes) * min(1, x.N / 16)  # of b that a warp reads 32 bytes of
    loads = warps * turns * SHORT_TERMS * (2 * COSTS.short_load + COSTS.short_sector * rows)
    joined = COSTS.short_block if plan.tile in SHORT_BLOCKS else 0.0
    return COSTS.short_launch + joined + longest(turns * COSTS.short_turn, loads, memory)


def _short_grid_us(rows: int, x: Problem, memory: float) -> float:
    """The same of threads that compute `rows` rows and columns each."""
    beside = min(32, 2 ** (count(x.N, rows) - 1).bit_length())
    warps = count(count(x.N, rows * beside) * count(x.M, rows * 32 // beside), x.multiprocessors)
    turns = count(x.K, 16 // rows)
    loads = warps * (x.K * 2 * rows * COSTS.short_load + rows * rows * COSTS.short_store)
    return COSTS.short_launch + longest(turns * COSTS.short_turn + rows * rows * COSTS.short_element, loads, memory)


def _short_tile_us(across: int, x: Problem, memory: float) -> float:
    """Launch, turns of loads, and the work of a multiprocessor's tiles."""
    rows, columns = 1024 // across, 4 * across
    tiles = count(count(x.M, rows) * count(x.N, columns), x.multiprocessors)
    turns = count((rows + columns) * x.K, 16 * 256)
    work = tiles * (x.K * COSTS.tile_term + COSTS.tile_store)
    return COSTS.tile_launch + turns * COSTS.short_turn + longest(work, memory)


def _narrow_us(plan: Plan, x: Problem, memory: float) -> float:
    """Launch, the load of b, and the longest of a warp's turns, of a multiprocessor's work, and of memory."""
    division = divide(x.M, x.N, x.K, plan.tile, x.multiprocessors)
    if division is None:
        return float("inf")
    groups, steps = count(x.N, division.tile_columns), count(x.K, 16)
    tiles = count(division.rows, division.tile_rows)
    rounds = count(tiles * division.sharing, division.warps)
    products = 256 * count(division.tile_rows, 16) * division.tile_columns * groups * steps  # of a tile
    fragments = 32 * division.tile_columns * groups * steps
    busy = tiles * (products / COSTS.mma_rate + fragments / COSTS.narrow_shared)
    mmas = count(division.tile_rows, 16) * division.tile_columns // 8
    loads = 1 if x.K % 8 == 0 else COSTS.narrow_pairs if x.K % 2 == 0 else COSTS.narrow_elements
    own = rounds * steps * count(groups, division.sharing) * (COSTS.narrow_step * loads + mmas * COSTS.narrow_mma)
    turns = rounds * count(x.K, division.piece) * COSTS.narrow_turn
    return COSTS.narrow_launch + x.N * x.K / COSTS.narrow_load + longest(own + turns, busy, memory)


def _cluster_us(plan: Plan) -> float:
    return COSTS.cluster + COSTS.cluster_part * plan.parts if plan.parts > 1 else 0.0


def _wgmma_us(plan: Plan, tile: Tile, memory: float, x: Problem) -> float:
    """Copies, launch, the longest of traffic and rounds, and the addition of parts."""
    fitted, together = plan.kernel == "fitted", tile.cluster * tile.beside
    blocks, steps = blocks_of(tile, x) * plan.parts, count(count(x.K, tile.K), plan.parts)
    clusters = x.multiprocessors // together - 3 * (together == 4)  # parts of the device have no place for four
    rounds = count(blocks // together, max(1, clusters))
    a_rows = count(tile.M, 64) * 64 if fitted and x.a_across_k else tile.M
    loaded = 2 * tile.K * (a_rows * (1 + x.a_split) / tile.beside + tile.N * (1 + x.b_split) / tile.cluster)
    stored = tile.M * tile.N / COSTS.store if x.N % 8 != 0 else 0.0
    stored += tile.M * tile.N * COSTS.wgmma_store
    products = COSTS.fitted_step + COSTS.fitted_product * tile.N * max(tile.M, COSTS.fitted_rows)
    own = products if fitted else tile.step_us
    slow = COSTS.throttle * (1 - exp(-rounds * steps * own / THROTTLED_US))
    beyond = COSTS.wgmma_beyond * (1 - x.M / (count(x.M, tile.M) * tile.M))
    step_us = longest(own * (1 + slow), loaded / COSTS.wgmma_load, _hot_us(tile, x)) * (1 + beyond)
    busy = rounds * ((COSTS.fitted_block if fitted else COSTS.wgmma_block) + steps * step_us + stored)
    if fitted:
        us = COSTS.fitted_launch + (0.0, COSTS.fitted_pair, 0.0, COSTS.fitted_four)[together - 1]
    else:
        us = COSTS.wgmma16_launch if plan.kernel == "wgmma16" else COSTS.wgmma_launch
        us += COSTS.wgmma_cluster * (together > 1)
    us += longest(busy, memory, blocks * steps * loaded / COSTS.wgmma_l2)
    if x.a_copied or x.b_copied:
        us += COSTS.copy + 4 * (x.a_copied * x.M * x.K + x.b_copied * x.K * x.N) / COSTS.scattered
    if plan.parts > 1:
        us += COSTS.add + COSTS.add_part * plan.parts + 8 * blocks * tile.M * tile.N / COSTS.scattered
    return us


def _hot_us(tile: Tile, x: Problem) -> float:
    """Of a step: lines that many blocks need are requested by one after the other, and once for each of their rows."""
    below, beside = count(x.M, tile.M * tile.cluster), count(x.N, tile.N * tile.beside)
    of_b = min(below, x.multiprocessors // tile.cluster) * _rows_of_a_line(x.K if x.b_along_k else x.N)
    of_a = min(beside, x.multiprocessors // tile.beside) * _rows_of_a_line(x.M if x.a_across_k else x.K)
    return max(of_a, of_b) * COSTS.wgmma_hot


def _rows_of_a_line(elements: int) -> float:
    """Rows of so many elements that have a part of a line of the L2 cache, on average."""
    size = 2 * elements
    return 1.0 if size >= 2 * LINE else (LINE + size - gcd(LINE, size)) / size


def _skinny_us(plan: Plan, x: Problem, memory: float) -> float:
    """A copy, launch, and the longest of traffic and of rounds of clusters, two blocks on a multiprocessor. It needs a
    contiguous along k."""
    columns = SKINNY_COLUMNS[plan.tile]
    tiles, steps = count(x.N, columns), count(x.K, SKINNY_TERMS)
    loaded = 2 * SKINNY_TERMS * (columns * (1 + x.b_split) + max(16, x.M) * (1 + x.a_split))
    slots = 2 * x.multiprocessors - 24 * (plan.parts > 2)  # parts of the device have no place for large clusters
    rounds = count(tiles, max(1, slots // plan.parts))
    step_us = longest(COSTS.skinny_step, loaded / COSTS.skinny_load)
    busy = rounds * (COSTS.skinny_block + count(steps, plan.parts) * step_us)
    us = COSTS.skinny_launch + (COSTS.skinny_cluster + plan.parts * COSTS.skinny_part) * (plan.parts > 1)
    pieces = 1 + COSTS.skinny_pieces * (columns == 64)
    us += longest(busy, memory * pieces, tiles * steps * loaded / COSTS.wgmma_l2)
    return us + (COSTS.skinny_copy + 4 * x.M * x.K / COSTS.scattered) * (x.a_copied or x.a_across_k)


def longest(*times: float) -> float:
    """The longest of concurrent activities, and some of the others, since they overlap imperfectly."""
    return sum(each**4 for each in times) ** 0.25
