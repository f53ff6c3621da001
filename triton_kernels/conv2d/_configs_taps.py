"""Configurations of taps.py: the autotuner's short lists, and those of a longer search."""

import itertools
from typing import Any

import torch
import triton

from triton_kernels._runtime.configs import columns_that_suit, shared_memory


def _config(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages)


HALF_CONFIGS = [
    _config(128, 256, 64, 8, 3),
    _config(128, 128, 64, 4, 3),
    _config(64, 128, 64, 4, 3),
    _config(64, 128, 64, 4, 2),
    _config(128, 64, 64, 4, 4),
    _config(128, 32, 64, 4, 4),
    _config(64, 16, 64, 4, 4),
]
TF32_CONFIGS = [
    _config(128, 256, 32, 8, 3),
    _config(128, 128, 32, 4, 3),
    _config(128, 64, 32, 4, 4),
    _config(64, 16, 32, 4, 4),
]
# No tensor cores: 64 accumulators per thread need one shared-memory load per 16 multiply-adds.
IEEE_CONFIGS = [_config(128, 128, 16, 8, 3), _config(128, 64, 16, 4, 3), _config(64, 16, 32, 4, 3)]

CONFIGS = HALF_CONFIGS + TF32_CONFIGS + IEEE_CONFIGS


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those for the kind of arithmetic whose columns suit K."""
    if args["x_ptr"].dtype != torch.float32:
        return columns_that_suit(HALF_CONFIGS, constants["K"])
    return columns_that_suit(TF32_CONFIGS if constants["PRECISION"] == "tf32" else IEEE_CONFIGS, constants["K"])


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    Up to 128 accumulators per thread, 64 without tensor cores; as many stages as fit one or two programs per
    multiprocessor.
    """
    x = args["x_ptr"]
    ieee = x.dtype == torch.float32 and constants["PRECISION"] == "ieee"
    most, steps = (64, (16, 32)) if ieee else (128, (32, 64))
    found = []
    for BLOCK_M, BLOCK_N, BLOCK_K, warps in itertools.product((64, 128, 256), (16, 32, 64, 128, 256), steps, (4, 8)):
        stage = (BLOCK_M + BLOCK_N) * BLOCK_K * x.element_size()
        if most // 4 <= BLOCK_M * BLOCK_N // (32 * warps) <= most:
            stages = {min(6, (shared_memory(x) // programs - 1024) // stage) for programs in (1, 2)}
            found += [_config(BLOCK_M, BLOCK_N, BLOCK_K, warps, n) for n in sorted(stages) if n >= 2]
    return columns_that_suit(found, constants["K"])
