"""Configurations of gluon.py, chosen by a model of the waves of tiles. No configuration is timed."""

from typing import NamedTuple

import triton

ROWS = 64
"""Queries of a tile per consumer warpgroup: the M of one wgmma."""
OUT_COLUMNS = 64
"""Columns of the output that one TMA store writes: 128 bytes, a swizzled row of shared memory."""
STEP_OF_THREE = 1.32
"""Time of a step with three consumers relative to two, for D = 64 without a mask (docs/lab/attention_gluon.md)."""
TILE_COST = 2.0
"""Fixed cost of a tile (first loads, first softmax, epilogue), in units of a block of keys. Fitted to the times of
causal cases from S = 512 to 8192."""
GROUP_BYTES = 2**24
"""Bytes of keys and values of the heads that run together: a third of an H200's L2 cache."""
GROUP_WAVES = 8
"""With fewer tiles per program, groups of heads get twice the bytes: the last group is a larger part of the work."""


class Config(NamedTuple):
    """The division of the work of a launch. The fields are compile-time constants of the kernel."""

    CONSUMERS: int
    """Warpgroups of ROWS queries: 2 with 240 registers per thread, or 3 with 160."""
    BLOCK_N: int
    """Keys of a step."""
    STAGES: int
    """Blocks of keys in shared memory, and the same number of blocks of values."""
    PINGPONG: bool = False
    """Consumers issue their products in turn."""
    RESCALE_EARLY: bool = False
    """The output is rescaled while q k^T runs, not after p v."""
    LATE_SUM: bool = False
    """Weights are summed over the four threads of a row once, at the end."""


HEAD_64_TWO = Config(2, 128, 3, PINGPONG=True, RESCALE_EARLY=True, LATE_SUM=True)
HEAD_64_THREE = Config(3, 128, 2)
HEAD_128 = Config(2, 128, 2, RESCALE_EARLY=True, LATE_SUM=True)
HEAD_256 = Config(2, 64, 2, LATE_SUM=True)
CONFIGS = [HEAD_64_TWO, HEAD_64_THREE, HEAD_128, HEAD_256]


def configuration(D: int, causal: bool, heads: int, S_q: int, processors: int) -> Config:
    """The configuration for `heads` heads of S_q queries on a GPU of `processors` multiprocessors.

    Two consumers hold the scores of 128 keys (64 for D = 256) in registers beside the output. At D = 64 softmax is the
    limit, and a third consumer hides more of it. With a mask three consumers would spill registers. Three consumers are
    faster only if their larger tiles do not need more waves.
    """
    if D == 128:
        return HEAD_128
    if D == 256:
        return HEAD_256
    if causal:
        return HEAD_64_TWO
    waves = {
        config: triton.cdiv(heads * triton.cdiv(S_q, ROWS * config.CONSUMERS), processors)
        for config in (HEAD_64_TWO, HEAD_64_THREE)
    }
    return HEAD_64_THREE if waves[HEAD_64_THREE] * STEP_OF_THREE < waves[HEAD_64_TWO] else HEAD_64_TWO


def heads_together(heads: int, G: int, tiles: int, programs: int, bytes_per_head: int) -> int:
    """Number of query heads that run together, so that their keys and values stay in the L2 cache.

    Arguments: query heads, query heads per key head, tiles and programs of the launch, bytes of keys and values of one
    key head. Small groups mix long and short tiles of a causal mask; large groups balance few tiles better.
    """
    group_bytes = GROUP_BYTES if tiles >= GROUP_WAVES * programs else 2 * GROUP_BYTES
    return min(heads, G * max(1, group_bytes // bytes_per_head))
