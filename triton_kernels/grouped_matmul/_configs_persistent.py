"""Configurations of persistent.py: the autotuner's short list, and those of a longer search."""

import itertools
from typing import Any

import triton

from triton_kernels._runtime.configs import shared_memory


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    block_m, block_n, block_k = args["BLOCK_M"], args["BLOCK_N"], args["BLOCK_K"]
    args["x_desc"].block_shape = [block_m, block_k]
    args["w_desc"].block_shape = [1, block_k, block_n] if args["W_ROWS"] else [1, block_n, block_k]


def _config(BLOCK_M: int, BLOCK_N: int, GROUP_M: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": 64, "GROUP_M": GROUP_M}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_blocks)


# Small tiles are for experts with few rows: a tile has rows of one expert only.
CONFIGS = [
    _config(128, 256, 8, 8, 3),
    _config(128, 128, 8, 8, 4),
    _config(128, 128, 8, 4, 4),
    _config(64, 256, 8, 4, 4),
    _config(64, 128, 8, 4, 5),
    _config(64, 64, 8, 4, 6),
]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """Drops tiles of 128 rows where experts have at most 32 rows on average: they would be mostly empty."""
    few = args["T"] <= 32 * args["E"]
    return [each for each in configs if not few or each.kwargs["BLOCK_M"] == 64]


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times: as many stages as fit beside the epilogue's buffer."""
    shared = shared_memory(args["x_desc"].base) - 1024
    found = []
    tiles = itertools.product((64, 128), (64, 128, 256), (4, 8), (4, 8, 16))
    for BLOCK_M, BLOCK_N, warps, GROUP_M in tiles:
        sums = BLOCK_M * BLOCK_N // (32 * warps)
        stages = min(7, (shared - BLOCK_M * BLOCK_N * 2) // ((BLOCK_M + BLOCK_N) * 128))
        if 32 <= sums <= 128 and 16 * warps <= BLOCK_M and stages >= 2:
            found.append(_config(BLOCK_M, BLOCK_N, GROUP_M, warps, stages))
    return short_list(found, args)
