"""Configurations of conv2d.py: the autotuner's short lists, and the space of a longer search."""

import itertools
from typing import Any

import torch
import triton

from triton_kernels._configs import shared_memory


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
# Operands that the threads gather themselves, element by element: no stages to speak of.
GATHER_CONFIGS = [_config(128, 64, 32, 8, 2), _config(64, 64, 32, 4, 2)]

CONFIGS = HALF_CONFIGS + TF32_CONFIGS + IEEE_CONFIGS + GATHER_CONFIGS


def set_boxes(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors of _conv2d_boxes.py the block shapes of the configuration."""
    height, width, block_n, block_k = (args[name] for name in ("BOX_H", "BOX_W", "BLOCK_N", "BLOCK_K"))
    box = [args["BLOCK_M"] // (height * width), height, width]
    args["x_desc"].block_shape = [*box, block_k]
    args["weight_desc"].block_shape = [block_n, block_k]
    args["out_desc"].block_shape = [*box, block_n // args["PARTS"]]


def _boxes(
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, PARTS: int, PER_SM: int, num_warps: int, num_stages: int
) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "PARTS": PARTS, "PER_SM": PER_SM}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, pre_hook=set_boxes)


HALF_BOXES = [
    _boxes(128, 256, 64, 2, 1, 8, 3),
    _boxes(128, 128, 64, 2, 2, 4, 3),
    _boxes(128, 64, 64, 1, 2, 4, 4),
    _boxes(256, 64, 64, 1, 2, 4, 2),
]
TF32_BOXES = [
    _boxes(128, 256, 32, 4, 1, 8, 3),
    _boxes(128, 128, 32, 4, 2, 4, 3),
    _boxes(128, 64, 32, 2, 2, 4, 4),
]
BOX_CONFIGS = HALF_BOXES + TF32_BOXES


def box_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations of _conv2d_boxes.py that the autotuner times."""
    return _suitable(TF32_BOXES if constants["PRECISION"] == "tf32" else HALF_BOXES, constants["K"])


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those of the multiplying unit whose columns suit K."""
    if constants["GATHER"]:
        return GATHER_CONFIGS
    if args["x_ptr"].dtype != torch.float32:
        return _suitable(HALF_CONFIGS, constants["K"])
    return _suitable(TF32_CONFIGS if constants["PRECISION"] == "tf32" else IEEE_CONFIGS, constants["K"])


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of minutes times beyond the short list.

    Up to 128 accumulators per thread, half of it without tensor cores; as many stages as fit one or two programs per
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
    return _suitable(found, constants["K"])


def _suitable(configs: list[triton.Config], K: int) -> list[triton.Config]:
    """Those with at most 1.5 times the fewest columns that cover K, and at most 4 blocks more than the widest needs."""
    columns = {config: triton.cdiv(K, config.kwargs["BLOCK_N"]) * config.kwargs["BLOCK_N"] for config in configs}
    fewest = min(columns.values())
    suitable = [config for config in configs if 2 * columns[config] <= 3 * fewest]
    widest = max(config.kwargs["BLOCK_N"] for config in suitable)
    return [config for config in suitable if 2 * config.kwargs["BLOCK_N"] >= widest]
