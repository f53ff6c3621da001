"""Configurations of pipelined.py and parts.py: the autotuner's short list, and those of a longer search."""

import itertools
from typing import Any

import torch
import triton

from triton_kernels._runtime.configs import device, multiprocessors, shared_memory, tile_counts, with_enough_tiles
from triton_kernels.matmul._plan import TILES, Problem, best_tiles


def config(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, num_warps: int, num_stages: int) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages)


# One list per kind of arithmetic. On Hopper a warpgroup (4 warps) issues wgmma of 64 rows; 256 columns need the least
# shared-memory bandwidth per product. The small tiles are for matrices with few tiles or few rows.
HALF_CONFIGS = [config(*tile[:5]) for tile in TILES]
# "promoted" needs two accumulators per thread: of 64 registers each, or of 128 and 64.
FLOAT8_CONFIGS = {
    "promoted": [
        config(128, 256, 128, 8, 3),
        config(128, 256, 128, 8, 4),
        config(128, 128, 128, 8, 3),
        config(128, 128, 128, 8, 4),
        config(64, 256, 128, 8, 3),
        config(64, 256, 128, 8, 4),
        config(64, 128, 128, 4, 4),
        config(128, 64, 128, 4, 4),
        config(64, 64, 128, 4, 5),
        config(64, 32, 128, 4, 5),
        config(64, 16, 256, 4, 4),
        config(16, 128, 128, 4, 4),
        config(16, 32, 256, 4, 4),
    ],
    "fast": [
        config(128, 256, 128, 8, 3),
        config(128, 256, 128, 8, 4),
        config(256, 128, 128, 8, 3),
        config(256, 128, 128, 8, 4),
        config(128, 128, 128, 4, 4),
        config(128, 128, 128, 8, 4),
        config(64, 128, 128, 4, 4),
        config(128, 64, 128, 4, 4),
        config(64, 64, 128, 4, 5),
        config(64, 32, 128, 4, 5),
        config(64, 16, 256, 4, 4),
        config(16, 128, 128, 4, 4),
        config(16, 32, 256, 4, 4),
    ],
}
TF32_CONFIGS = [
    config(128, 256, 32, 8, 3),
    config(128, 256, 32, 8, 4),
    config(128, 128, 32, 4, 3),
    config(128, 128, 32, 8, 4),
    config(64, 128, 32, 4, 4),
    config(64, 128, 64, 4, 4),
    config(64, 64, 32, 4, 5),
    config(64, 16, 64, 4, 4),
    config(16, 64, 64, 4, 5),
]
# No tensor cores: 64 accumulators per thread need one shared-memory load per 16 multiply-adds.
IEEE_CONFIGS = [
    config(128, 128, 16, 8, 3),
    config(128, 128, 16, 8, 4),
    config(128, 128, 32, 8, 2),
    config(128, 64, 16, 4, 3),
    config(64, 128, 16, 8, 3),
    config(64, 64, 16, 4, 3),
    config(32, 64, 32, 4, 3),
    config(16, 64, 32, 4, 4),
    config(64, 16, 32, 4, 4),
]


CONFIGS = HALF_CONFIGS + TF32_CONFIGS + IEEE_CONFIGS + FLOAT8_CONFIGS["promoted"] + FLOAT8_CONFIGS["fast"]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those for the kind of arithmetic whose tiles suit C."""
    if args["a_ptr"].dtype == torch.float8_e4m3fn:
        return suitable(FLOAT8_CONFIGS[constants["PRECISION"]], args, parts(args))
    if args["a_ptr"].dtype != torch.float32:
        return planned(args, **constants)
    return suitable(TF32_CONFIGS if constants["PRECISION"] == "tf32" else IEEE_CONFIGS, args, parts(args))


def planned(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The tiles that the model of _plan.py chooses for these parts."""
    odd = (constants.get(f"ALIGN_{matrix}", 1) == 1 for matrix in "ABC")
    x = Problem(args["M"], args["N"], args["K"], *odd, device(args["a_ptr"]))
    return [config(*tile[:5]) for tile in best_tiles(x, parts(args))]


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    Tensor cores: steps of 128 or 256 bytes of K, longer for small tiles; 64 to 128 accumulators per thread, or fewer
    for the smallest tiles; as many stages as fit one or two programs per multiprocessor.
    Without tensor cores: short steps, 32 to 64 accumulators.
    """
    a = args["a_ptr"]
    ieee = a.dtype == torch.float32 and constants["PRECISION"] == "ieee"
    shared = shared_memory(a)
    most = 64 if ieee else 128  # accumulators per thread
    found = []
    sides = (16, 32, 64, 128, 256)
    for BLOCK_M, BLOCK_N, warps, step in itertools.product(sides, sides, (4, 8), (64, 128, 256, 512)):
        accumulators = BLOCK_M * BLOCK_N // (32 * warps)
        BLOCK_K = step // a.element_size()
        if accumulators > most or (accumulators < most // 2 and warps > 4) or not 16 <= BLOCK_K <= 256:
            continue
        if ieee:
            found += [config(BLOCK_M, BLOCK_N, BLOCK_K, warps, n) for n in (2, 3, 4) if BLOCK_K * n <= 64]
        elif step >= 128 and (step <= 256 or BLOCK_M * BLOCK_N <= 4096):
            stage = (BLOCK_M + BLOCK_N) * step
            stages = {min(8, (shared // programs - 1024) // stage) for programs in (1, 2)}
            found += [config(BLOCK_M, BLOCK_N, BLOCK_K, warps, n) for n in sorted(stages) if n >= 2]
    return suitable(found, args, parts(args))


def parts(args: dict[str, Any]) -> int:
    """Number of parts of K."""
    return triton.cdiv(args["K"], args.get("K_part", args["K"]))


def suitable(configs: list[triton.Config], args: dict[str, Any], count: int) -> list[triton.Config]:
    """Drops tiles that cover over twice the least area, are too few with `count` parts, or are needlessly small."""
    area = {config: config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"] for config in configs}
    tiles = tile_counts(configs, args["M"], args["N"])
    least = min(tiles[config] * area[config] for config in configs)
    tiles = {config: count for config, count in tiles.items() if count * area[config] <= 2 * least}
    tiles = with_enough_tiles(tiles, multiprocessors(args["a_ptr"]) // count)
    largest = max(area[config] for config in tiles)
    return [config for config in tiles if area[config] >= largest // 4]
