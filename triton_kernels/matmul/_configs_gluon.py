"""Configurations of gluon.py: the autotuner's short list, and those of a longer search."""

import itertools
from typing import Any

import triton
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from triton_kernels._runtime.configs import (
    device,
    multiprocessors,
    shared_memory,
    with_enough_tiles,
    without_small_tiles,
)
from triton_kernels.matmul._plan import Problem
from triton_kernels.matmul._plan_gluon import ROWS, TILES, Tile, best_tiles

SWIZZLE = 128
"""Bytes per shared-memory row: rows of 128 bytes, swizzled, serve wgmma and TMA without bank conflicts."""


def _set_block(desc: TensorDescriptor, *block: int) -> None:
    """Sets the shape of the blocks that `desc` copies, and their shared-memory layout, swizzled for wgmma."""
    element = desc.base.element_size()
    desc.block_shape = list(block)
    desc.layout = gl.NVMMASharedLayout(min(SWIZZLE, block[1] * element), 8 * element, rank=2)


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors the block shapes of the configuration."""
    rows, block_n, block_k = ROWS, args["BLOCK_N"], args["BLOCK_K"]
    left = 1 << block_n.bit_length() - 1
    right = block_n - left or left
    part_n = min(SWIZZLE // args["c_desc"].base.element_size(), right)
    _set_block(args["a_desc"], *((rows, block_k) if args["A_ROWS"] else (block_k, rows)))
    _set_block(args["b_desc"], *((block_k, left) if args["B_ROWS"] else (left, block_k)))
    _set_block(args["right_desc"], *((block_k, right) if args["B_ROWS"] else (right, block_k)))
    _set_block(args["c_desc"], *((rows, part_n) if args["C_ROWS"] else (part_n, rows)))


def _config(CONSUMERS: int, BLOCK_N: int, BLOCK_K: int, STAGES: int, GROUP_M: int, BUFFERS: int = 2) -> triton.Config:
    tile = {"CONSUMERS": CONSUMERS, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "STAGES": STAGES}
    return triton.Config(tile | {"BUFFERS": BUFFERS, "GROUP_M": GROUP_M}, num_warps=4, pre_hook=set_blocks)


# Tiles of 128 x 256 load the fewest bytes per product. Smaller tiles are for outputs with fewer such tiles than
# multiprocessors. With this GROUP_M the tiles of one wave cover about a square.
HALF_CONFIGS = [_config(tile.consumers, tile.N, 64, tile.stages, tile.group, BUFFERS=tile.buffers) for tile in TILES]
TF32_CONFIGS = [
    _config(2, 256, 32, 4, 16),
    _config(2, 128, 32, 6, 8),
    _config(1, 128, 32, 8, 16),
    _config(1, 64, 32, 12, 16),
]
FLOAT8_CONFIGS = [
    _config(2, 256, 128, 4, 16),
    _config(2, 256, 128, 3, 16),
    _config(2, 128, 128, 6, 8),
    _config(1, 128, 128, 8, 16),
    _config(1, 64, 128, 12, 16, BUFFERS=1),
]
CONFIGS = HALF_CONFIGS + TF32_CONFIGS + FLOAT8_CONFIGS


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: in 16 bits the model's, otherwise those whose tiles suit C."""
    by_type = {gl.float32: TF32_CONFIGS, gl.float8e4nv: FLOAT8_CONFIGS}
    if constants["DTYPE"] in by_type:
        return _suitable(by_type[constants["DTYPE"]], args)
    x = Problem(args["M"], args["N"], args["K"], False, False, False, device(args["a_desc"].base))
    chosen = best_tiles(x, triton.cdiv(x.K, args.get("K_part", x.K)))
    return [config for config in HALF_CONFIGS for tile in chosen if _is(config, tile)]


def _is(config: triton.Config, tile: Tile) -> bool:
    return all(
        config.kwargs[name] == size for name, size in zip(("CONSUMERS", "BLOCK_N", "STAGES"), tile, strict=False)
    )


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    Groups of 4 to 32 tile rows, and as many stages as fit beside one or two epilogue buffers per consumer.
    """
    base = args["a_desc"].base
    element, out_element = base.element_size(), args["c_desc"].base.element_size()
    shared = shared_memory(base) - 2048
    found = []
    tiles = itertools.product((1, 2), (64, 128, 256), (1, 2))
    for (CONSUMERS, BLOCK_N, BUFFERS), GROUP_M in itertools.product(tiles, (4, 8, 16, 32)):
        part_n = min(SWIZZLE // out_element, BLOCK_N)
        if BLOCK_N // part_n % BUFFERS != 0:
            continue
        rows = ROWS * CONSUMERS
        stages = min(12, (shared - BUFFERS * rows * part_n * out_element) // ((rows + BLOCK_N) * SWIZZLE))
        found.append(_config(CONSUMERS, BLOCK_N, SWIZZLE // element, stages, GROUP_M, BUFFERS))
    return _suitable(found, args)


def tile_count(config: dict[str, int], M: int, N: int) -> int:
    """Tiles of [ROWS * CONSUMERS, BLOCK_N] that cover an M x N matrix."""
    return triton.cdiv(M, ROWS * config["CONSUMERS"]) * triton.cdiv(N, config["BLOCK_N"])


def _suitable(configs: list[triton.Config], args: dict[str, Any]) -> list[triton.Config]:
    """Drops sizes that give too few tiles for the device, and sizes below what this requires."""
    processors = multiprocessors(args["a_desc"].base)
    tiles = {config: tile_count(config.kwargs, args["M"], args["N"]) for config in configs}
    return without_small_tiles(with_enough_tiles(tiles, processors), processors)
