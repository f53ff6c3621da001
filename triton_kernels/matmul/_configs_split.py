"""Configurations of split.py: the autotuner's short list, and those of a longer search."""

import itertools
from typing import Any

import triton

from triton_kernels._runtime.configs import multiprocessors, shared_memory, tile_counts, with_enough_tiles


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    args["a_desc"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]
    args["b_desc"].block_shape = [args["BLOCK_N"], args["BLOCK_K"]]


def _config(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_blocks)


# Three accumulators leave registers for 64 elements of C per thread.
CONFIGS = [
    _config(128, 128, 32, 8, 4),
    _config(128, 128, 64, 8, 2),
    _config(64, 128, 32, 4, 3),
    _config(128, 64, 32, 4, 3),
    _config(64, 64, 32, 4, 4),
]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those with enough tiles for the device."""
    return list(with_enough_tiles(tile_counts(configs, args["M"], args["N"]), multiprocessors(args["a_desc"].base)))


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    Up to 64 elements of C per thread, and as many stages as fit one or two programs per multiprocessor.
    """
    shared = shared_memory(args["a_desc"].base)
    found = []
    for BLOCK_M, BLOCK_N, BLOCK_K in itertools.product((64, 128, 256), (64, 128, 256), (16, 32, 64)):
        warps = max(4, BLOCK_M * BLOCK_N // (32 * 64))
        stage = 6 * (BLOCK_M + BLOCK_N) * BLOCK_K
        stages = {min(6, (shared // programs - 1024) // stage) for programs in (1, 2)}
        found += [_config(BLOCK_M, BLOCK_N, BLOCK_K, warps, n) for n in sorted(stages) if n >= 2 and warps <= 16]
    return short_list(found, args, **constants)
