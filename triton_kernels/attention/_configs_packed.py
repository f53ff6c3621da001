"""Configurations of packed.py: the autotuner's short list, and those of a longer search."""

import itertools
from typing import Any

import torch
import triton

from triton_kernels._runtime.configs import shared_memory


def set_blocks(args: dict[str, Any]) -> None:
    """Before each launch: gives the descriptors, if there are any, the block shape of the configuration."""
    for name in ("k_desc", "v_desc"):
        if args[name] is not None:
            args[name].block_shape = [1, 1, args["BLOCK_N"], args["D"]]


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int, maxnreg: int | None = None) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, maxnreg=maxnreg, pre_hook=set_blocks)


# Keys: the largest D that a list suits. Tiles of 64 rows leave room for several programs per multiprocessor, four at
# D = 64: the softmax of one overlaps with the products of the others. Tiles of 128 rows read half as much from the L2
# cache. With maxnreg=128 two programs of 8 warps fit, but the compiler serializes their products.
HALF_CONFIGS = {
    64: [
        _config(64, 64, 4, 3),
        _config(128, 64, 4, 3),
        _config(128, 128, 8, 3),
    ],
    128: [
        _config(64, 64, 4, 3),
        _config(128, 64, 8, 2, maxnreg=128),
        _config(128, 128, 8, 2),
        _config(128, 128, 8, 3),
        _config(128, 64, 8, 3),
    ],
    256: [
        _config(128, 64, 8, 2),
        _config(128, 32, 8, 3),
        _config(64, 64, 8, 2),
        _config(64, 32, 4, 2),
    ],
}
IEEE_CONFIGS = {  # no tensor cores: operands pass through registers, so tiles are small
    64: [_config(64, 32, 8, 2), _config(32, 32, 4, 2), _config(16, 64, 4, 2)],
    128: [
        _config(64, 16, 16, 2),
        _config(64, 16, 8, 3),
        _config(32, 16, 8, 2),
        _config(32, 16, 4, 2),
        _config(16, 32, 8, 2),
    ],
    256: [_config(64, 16, 16, 2), _config(32, 32, 8, 2), _config(32, 16, 8, 2), _config(16, 32, 8, 2)],
}


CONFIGS = [c for configs in (*HALF_CONFIGS.values(), *IEEE_CONFIGS.values()) for c in configs]


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those for this D and dtype whose tiles suit the queries.

    If TMA loads and D is at most 128, only the first one is kept, which is the fastest; for grouped heads of D = 128
    the first two. Timing more of them, back to back in a warm cache, would choose some that are up to 8% slower.
    """
    D, G = constants["D"], constants["G"]
    configs = (IEEE_CONFIGS if args["q_ptr"].dtype == torch.float32 else HALF_CONFIGS)[max(64, D)]
    if args.get("k_desc") is not None and D <= 128:
        configs = configs[: 1 if D <= 64 or G == 1 else 2]
    return _suitable(configs, args, constants)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    Output and scores take at most 160 registers per thread (64 for float32), and the stages of keys and values fit into
    shared memory.
    """
    q, D = args["q_ptr"], constants["D"]
    ieee = q.dtype == torch.float32
    shared = shared_memory(q) - 1024
    rows = (16, 32, 64, 128, 256) if D <= 64 else (16, 32, 64, 128)
    keys = (16, 32, 64) if ieee else (32, 64, 128, 256)
    found = []
    for BLOCK_M, BLOCK_N, warps, stages in itertools.product(rows, keys, (4, 8, 16), (2, 3, 4)):
        registers = BLOCK_M * (D + BLOCK_N) // (32 * warps)
        fits = (BLOCK_M + 2 * stages * BLOCK_N) * D * q.element_size() <= shared
        if fits and registers <= (64 if ieee else 160) and (registers >= 32 or warps == 4):
            found.append(_config(BLOCK_M, BLOCK_N, warps, stages))
            if not ieee and warps == 8 and registers <= 104:
                found.append(_config(BLOCK_M, BLOCK_N, warps, stages, maxnreg=128))
    return _suitable(found, args, constants)


def _suitable(configs: list[triton.Config], args: dict[str, Any], constants: dict[str, Any]) -> list[triton.Config]:
    """Drops tiles that pad to over twice the fewest rows, and tiles with less than half the rows of the largest."""
    rows = args["S_q"] * constants["G"]
    padded = {config: triton.cdiv(rows, b := config.kwargs["BLOCK_M"]) * b for config in configs}
    configs = [config for config in configs if padded[config] <= 2 * min(padded.values())]
    largest = max(config.kwargs["BLOCK_M"] for config in configs)
    return [config for config in configs if config.kwargs["BLOCK_M"] >= largest // 2]
