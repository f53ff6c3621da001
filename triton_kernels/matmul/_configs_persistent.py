"""Configurations of persistent.py: the autotuner's short list, and those of a longer search."""

import itertools
from typing import Any

import triton

from triton_kernels._runtime.configs import (
    multiprocessors,
    shared_memory,
    tile_counts,
    with_enough_tiles,
    without_small_tiles,
)


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    block_m, block_n, block_k = args["BLOCK_M"], args["BLOCK_N"], args["BLOCK_K"]
    part_n = block_n // args["PARTS"]
    args["a_desc"].block_shape = [block_m, block_k] if args["A_ROWS"] else [block_k, block_m]
    args["b_desc"].block_shape = [block_k, block_n] if args["B_ROWS"] else [block_n, block_k]
    args["c_desc"].block_shape = [block_m, part_n] if args["C_ROWS"] else [part_n, block_m]


def _config(
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, PARTS: int, GROUP_M: int, num_warps: int, num_stages: int
) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "PARTS": PARTS, "GROUP_M": GROUP_M}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_blocks)


# Two warpgroups share a tile of 128 x 256. Smaller tiles are for outputs with fewer such tiles than multiprocessors.
HALF_CONFIGS = [
    _config(128, 256, 64, 2, 16, 8, 3),
    _config(128, 256, 64, 4, 16, 8, 4),
    _config(128, 256, 64, 2, 8, 8, 3),
    _config(128, 128, 64, 1, 8, 8, 4),
    _config(128, 128, 64, 1, 8, 4, 4),
    _config(128, 64, 64, 1, 8, 4, 6),
    _config(64, 128, 64, 1, 16, 4, 6),
    _config(64, 64, 64, 1, 16, 4, 8),
]
TF32_CONFIGS = [
    _config(128, 256, 32, 4, 16, 8, 3),
    _config(128, 256, 32, 4, 16, 8, 4),
    _config(128, 128, 32, 2, 8, 8, 4),
    _config(128, 128, 32, 2, 8, 4, 4),
    _config(64, 128, 32, 1, 16, 4, 8),
    _config(64, 64, 32, 1, 16, 4, 6),
]
CONFIGS = HALF_CONFIGS + TF32_CONFIGS


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those of the dtype whose tiles suit C."""
    return _suitable(TF32_CONFIGS if constants["PRECISION"] == "tf32" else HALF_CONFIGS, args)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    One or two warpgroups; 64 to 128 accumulators per thread, or fewer for the smallest tiles; as many stages as fit
    beside the epilogue's buffer.
    """
    base = args["a_desc"].base
    element = base.element_size()
    shared = shared_memory(base) - 1024
    found = []
    tiles = itertools.product((64, 128, 256), (64, 128, 256), (4, 8))
    for (BLOCK_M, BLOCK_N, warps), PARTS, GROUP_M in itertools.product(tiles, (1, 2, 4), (8, 16)):
        accumulators = BLOCK_M * BLOCK_N // (32 * warps)
        useful = warps == 4 or (accumulators >= 64 and 16 * warps <= BLOCK_M)
        stages = min(8, (shared - BLOCK_M * BLOCK_N // PARTS * element) // ((BLOCK_M + BLOCK_N) * 128))
        if useful and accumulators <= 128 and BLOCK_N // PARTS in (64, 128) and stages >= 2:
            found.append(_config(BLOCK_M, BLOCK_N, 128 // element, PARTS, GROUP_M, warps, stages))
    return _suitable(found, args)


def _suitable(configs: list[triton.Config], args: dict[str, Any]) -> list[triton.Config]:
    """Drops sizes that give too few tiles for the device, and sizes below what this requires."""
    processors = multiprocessors(args["a_desc"].base)
    tiles = with_enough_tiles(tile_counts(configs, args["M"], args["N"]), processors)
    return without_small_tiles(tiles, processors)
