"""Configurations of peeled.py: the autotuner's short lists, and those of a longer search."""

import itertools
from typing import Any

import torch
import triton

from triton_kernels._runtime.configs import shared_memory


def _config(BLOCK_M: int, BLOCK_N: int, num_warps: int, num_stages: int, maxnreg: int | None = None) -> triton.Config:
    tile = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}
    return triton.Config(tile, num_warps=num_warps, num_stages=num_stages, maxnreg=maxnreg)


# Keys: the largest D that a list suits. Lists are short, because three kernels are compiled for each entry. With
# maxnreg=128 two programs of 8 warps share a multiprocessor.
STATISTICS = {
    64: [_config(128, 64, 8, 3, maxnreg=128), _config(128, 128, 8, 3)],
    128: [_config(128, 64, 8, 2, maxnreg=128), _config(128, 128, 8, 2)],
}
DQ = {
    64: [_config(128, 64, 8, 3), _config(128, 64, 4, 3)],
    128: [_config(128, 64, 8, 3), _config(128, 128, 8, 2)],
}
DK_DV = {
    64: [_config(64, 128, 8, 3), _config(64, 128, 8, 2)],
    128: [_config(64, 128, 8, 2), _config(32, 128, 8, 3)],
}
IEEE = [_config(32, 32, 8, 1), _config(16, 32, 8, 1), _config(32, 16, 8, 1)]
"""float32 has no tensor cores: operands pass through registers, so tiles are small."""

CONFIGS = [c for lists in (STATISTICS, DQ, DK_DV) for each in lists.values() for c in each] + IEEE


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those for this kernel, D and dtype."""
    if args["q_ptr"].dtype == torch.float32:
        return IEEE
    by_head = DK_DV if "dk_ptr" in args else DQ if "dq_ptr" in args else STATISTICS
    return by_head[max(64, constants["D"])]


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list.

    Sums and scores take at most 200 registers per thread (100 for float32), and the tiles fit into shared memory.
    """
    q, D = args["q_ptr"], constants["D"]
    ieee, keeps_keys = q.dtype == torch.float32, "dk_ptr" in args
    sizes = (16, 32, 64) if ieee else (32, 64, 128)
    found = []
    for BLOCK_M, BLOCK_N, warps, stages in itertools.product(sizes, sizes, (4, 8), (1, 2, 3, 4)):
        kept, moving = (BLOCK_N, BLOCK_M) if keeps_keys else (BLOCK_M, BLOCK_N)
        registers = kept * ((2 if keeps_keys else 1) * D + 2 * moving) // (32 * warps)
        fits = (2 * kept + 2 * stages * moving) * D * q.element_size() <= shared_memory(q) - 1024
        if fits and 32 <= registers <= (100 if ieee else 200):
            found.append(_config(BLOCK_M, BLOCK_N, warps, stages))
    return found
