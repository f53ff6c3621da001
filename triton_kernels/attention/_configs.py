"""Tiles of the plain attention kernels, and the choice among them for a dtype."""

from typing import Any

import torch
import triton

from triton_kernels._runtime.interpreter import INTERPRET

TILE = {"BLOCK_M": 128, "BLOCK_N": 128} if INTERPRET else {}  # in the interpreter a tile that numpy multiplies fast


def configs(*tiles: tuple[int, int, int, int]) -> list[triton.Config]:
    """A configuration for each (BLOCK_M, BLOCK_N, num_warps, num_stages). BLOCK_N is 32 in tiles for float32."""
    return [
        triton.Config({"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, num_warps=num_warps, num_stages=num_stages)
        for BLOCK_M, BLOCK_N, num_warps, num_stages in tiles
    ]


def short_list(configs: list[triton.Config], args: dict[str, Any], **_: Any) -> list[triton.Config]:
    """Selects tiles of BLOCK_N = 32 for float32, whose operands pass through registers, and larger ones for others."""
    float32 = args["q_ptr"].dtype == torch.float32  # it has no tensor cores
    return [config for config in configs if (config.kwargs["BLOCK_N"] == 32) == float32]
