"""Configurations of boxes.py: the autotuner's short lists, and those of a longer search."""

import itertools
from typing import Any

import triton

from triton_kernels._runtime.configs import columns_that_suit, shared_memory


def set_boxes(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    height, width, block_n, block_k = (args[name] for name in ("BOX_H", "BOX_W", "BLOCK_N", "BLOCK_K"))
    box = [args["BLOCK_M"] // (height * width), height, width]
    args["x_desc"].block_shape = [*box, block_k]
    args["weight_desc"].block_shape = [block_n, block_k]
    args["out_desc"].block_shape = [*box, block_n // args["PARTS"]]


def _config(
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, PARTS: int, PER_SM: int, num_warps: int, num_stages: int
) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "PARTS": PARTS, "PER_SM": PER_SM}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_boxes)


# Two warpgroups per program, or two programs of one warpgroup per multiprocessor.
HALF_CONFIGS = [
    _config(128, 256, 64, 2, 1, 8, 3),
    _config(256, 128, 64, 1, 1, 8, 3),
    _config(128, 128, 64, 1, 1, 8, 5),
    _config(128, 128, 64, 2, 2, 4, 3),
    _config(128, 64, 64, 1, 2, 4, 4),
    _config(256, 64, 64, 1, 1, 8, 4),
]
TF32_CONFIGS = [
    _config(128, 256, 32, 4, 1, 8, 3),
    _config(128, 128, 32, 2, 1, 8, 5),
    _config(128, 64, 32, 2, 2, 4, 3),
]
CONFIGS = HALF_CONFIGS + TF32_CONFIGS


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those of the dtype whose columns suit K."""
    return columns_that_suit(TF32_CONFIGS if constants["PRECISION"] == "tf32" else HALF_CONFIGS, constants["K"])


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    64 or 128 accumulators per thread, one or two programs per multiprocessor, and as many stages as fit beside the
    epilogue's buffer.
    """
    base = args["x_desc"].base
    element, found = base.element_size(), []
    shapes = itertools.product((128, 256), (64, 128, 256), (1, 2, 4), (1, 2), (4, 8))
    for BLOCK_M, BLOCK_N, PARTS, PER_SM, warps in shapes:
        shared = shared_memory(base) // PER_SM - 2048 - BLOCK_M * BLOCK_N // PARTS * element
        stages = min(6, shared // ((BLOCK_M + BLOCK_N) * 128))
        if BLOCK_M * BLOCK_N // (32 * warps) in (64, 128) and BLOCK_N // PARTS >= 64 and stages >= 2:
            found.append(_config(BLOCK_M, BLOCK_N, 128 // element, PARTS, PER_SM, warps, stages))
    return columns_that_suit(found, constants["K"])
