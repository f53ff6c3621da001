"""Configurations of persistent.py: the autotuner's list, and those of a longer search."""

import itertools
from typing import Any

import triton

from triton_kernels._runtime.configs import shared_memory


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    args["x_desc"].block_shape = [args["BLOCK_T"], args["BLOCK_K"]]
    args["dy_desc"].block_shape = [args["BLOCK_T"], args["BLOCK_N"]]


def _config(BLOCK_K: int, BLOCK_N: int, GROUP_M: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_K": BLOCK_K, "BLOCK_N": BLOCK_N, "BLOCK_T": 64, "GROUP_M": GROUP_M}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_blocks)


CONFIGS = [
    _config(128, 256, 8, 8, 3),
    _config(128, 128, 8, 8, 4),
    _config(128, 128, 8, 4, 4),
    _config(64, 128, 8, 4, 5),
]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """All configurations: the tiles of an expert do not depend on its rows."""
    return configs


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times: as many stages as fit beside the epilogue's buffer."""
    shared = shared_memory(args["x_desc"].base) - 1024
    found = []
    for BLOCK_K, BLOCK_N, warps, GROUP_M in itertools.product((64, 128), (64, 128, 256), (4, 8), (4, 8, 16)):
        sums = BLOCK_K * BLOCK_N // (32 * warps)
        stages = min(7, (shared - BLOCK_K * BLOCK_N * 2) // ((BLOCK_K + BLOCK_N) * 128))
        if 32 <= sums <= 128 and 16 * warps <= BLOCK_K and stages >= 2:
            found.append(_config(BLOCK_K, BLOCK_N, GROUP_M, warps, stages))
    return found
