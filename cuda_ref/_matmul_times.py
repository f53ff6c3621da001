"""The time of a plan of a matmul in 16 bits on Hopper, by a model of few constants (docs/lab/matmul_shapes.md).

A plan's work goes in rounds of blocks over the multiprocessors. The time of a round is that of its steps of k, which is
bound by latency if a multiprocessor has few blocks, by the tensor cores if it has many, or by the loads of the
multiprocessor. All rounds together take no less than the traffic of device memory and of the L2 cache.
"""

from typing import NamedTuple

from cuda_ref._matmul_tiles import (
    SHORT_GRIDS,
    SHORT_TERMS,
    SHORT_TILES,
    STREAM_TERMS,
    Plan,
    Problem,
    Tile,
    blocks_of,
    count,
    stream_blocks,
    tile_of,
)
from cuda_ref._narrow_plan import SHARED_BYTES, divide


class Costs(NamedTuple):
    """Of an H200: microseconds, and bytes, elements or products in a microsecond."""

    memory: float = 6.359e6  # bytes read: fitted to choices, and more than the device delivers
    split: float = 0.5365  # of the time to read rows by TMA more, if they begin within lines
    written: float = 2.492e6  # bytes written
    mma_launch: float = 2.548
    mma_block: float = 0.00125  # until the first step, and after the last one
    mma_rate: float = 2.493e6  # products of a multiprocessor
    mma_copy: float = 4.854e4  # elements that a multiprocessor copies to shared memory
    mma_shift: float = 2.29  # of a step's time more, for each operand at odd addresses
    mma_store: float = 5235  # elements
    mma_l2: float = 4.518e6
    cluster: float = 0.1568
    cluster_part: float = 0.05027
    cluster_sums: float = 1.3e6  # bytes that a multiprocessor reads from others
    stream_launch: float = 3.385
    stream_block: float = 0.00331
    stream_step: float = 2.159
    stream_shift: float = 0.5469
    wgmma_launch: float = 1.451
    wgmma_block: float = 0.8114
    wgmma_store: float = 3.125e-5  # of an element
    wgmma_cluster: float = 0.1484
    wgmma_load: float = 2.176e5  # bytes of whole lines that a multiprocessor loads
    wgmma_l2: float = 1.545e7  # and all of them
    fitted_launch: float = 2.148
    fitted_block: float = 1.312
    fitted_step: float = 0.1033
    fitted_product: float = 1.531e-5
    fitted_rows: float = 72.95  # fewer take as long
    short_launch: float = 1.088
    short_turn: float = 0.5051
    short_load: float = 0.003073  # of a warp
    short_element: float = 0.0393  # of a thread
    short_store: float = 0.0008477
    tile_launch: float = 2.458
    tile_term: float = 0.03925
    tile_store: float = 0.5792
    narrow_launch: float = 3.861
    narrow_load: float = 1.986e4  # elements of b
    narrow_turn: float = 0.4774  # of a warp: a stage's latency, of which the ring hides most
    narrow_step: float = 0.06766  # of a warp, for 16 terms
    narrow_pairs: float = 2.751  # times that, if terms are read in pairs or one by one
    narrow_elements: float = 3.347
    narrow_mma: float = 0.02006  # of a warp, for a tile of 8 columns
    narrow_shared: float = 1.437e5  # bytes of b that a multiprocessor reads from shared memory
    skinny_launch: float = 2.338
    skinny_step: float = 0.2285
    skinny_copy: float = 1.07
    copy: float = 2.618
    add: float = 2.045
    store: float = 4120  # elements of a multiprocessor that are not stored by TMA
    scattered: float = 3.972e6  # bytes of copies, and of parts


COSTS = Costs()


def predicted_us(plan: Plan, x: Problem) -> float:
    """The time of a plan."""
    written = 2 * x.M * x.N / COSTS.written
    memory = 2 * (x.M * x.K + x.K * x.N) / COSTS.memory + written
    by_tma = memory + COSTS.split * 2 * (x.a_split * x.M * x.K + x.b_split * x.K * x.N) / COSTS.memory
    if plan.kernel == "skinny":
        return _skinny_us(x, by_tma)
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
    rounds = count(stream_blocks(x, plan.tile) * plan.parts, 2 * x.multiprocessors)
    steps = count(x.K, STREAM_TERMS * plan.parts << plan.tile)
    shifts = 1 + COSTS.stream_shift * (x.a_copied if x.M > x.N else x.b_copied)
    busy = rounds * (COSTS.stream_block + steps * COSTS.stream_step * shifts)
    return COSTS.stream_launch + _cluster_us(plan) + longest(busy, memory * shifts)


def _short_us(plan: Plan, x: Problem, memory: float) -> float:
    """Launch, turns that wait for memory one after the other, and the loads of a multiprocessor's warps."""
    if plan.tile in SHORT_GRIDS:
        return _short_grid_us(SHORT_GRIDS[plan.tile], x, memory)
    if plan.tile in SHORT_TILES:
        return _short_tile_us(SHORT_TILES[plan.tile], x, memory)
    turns = count(x.K, SHORT_TERMS << plan.tile)
    warps = count(count(x.M * x.N << plan.tile, 32), x.multiprocessors)
    loads = 2 * warps * turns * SHORT_TERMS * COSTS.short_load
    return COSTS.short_launch + longest(turns * COSTS.short_turn, loads, memory)


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
    step_us = longest(products if fitted else tile.step_us, loaded / COSTS.wgmma_load)
    busy = rounds * ((COSTS.fitted_block if fitted else COSTS.wgmma_block) + steps * step_us + stored)
    us = (COSTS.fitted_launch if fitted else COSTS.wgmma_launch) + COSTS.wgmma_cluster * (together > 1)
    us += longest(busy, memory, blocks * steps * loaded / COSTS.wgmma_l2)
    if x.a_copied or x.b_copied:
        us += COSTS.copy + 4 * (x.a_copied * x.M * x.K + x.b_copied * x.K * x.N) / COSTS.scattered
    if plan.parts > 1:
        us += COSTS.add + 8 * blocks * tile.M * tile.N / COSTS.scattered
    return us


def _skinny_us(x: Problem, memory: float) -> float:
    """As matmul_skinny.cu divides k: blocks of 128 columns, two on a multiprocessor. It needs a contiguous along k."""
    tiles, steps, cluster = count(x.N, 128), count(x.K, 64), 1
    while cluster < 8 and tiles * cluster < x.multiprocessors and steps >= 8 * cluster:
        cluster *= 2
    rounds = count(tiles * cluster, 2 * x.multiprocessors)
    joined = COSTS.cluster * (cluster > 1)
    copied = COSTS.skinny_copy + 4 * x.M * x.K / COSTS.scattered if x.a_copied or x.a_across_k else 0.0
    return COSTS.skinny_launch + copied + joined + longest(rounds * count(steps, cluster) * COSTS.skinny_step, memory)


def longest(*times: float) -> float:
    """The longest of concurrent activities, and some of the others, since they overlap imperfectly."""
    return sum(each**4 for each in times) ** 0.25
