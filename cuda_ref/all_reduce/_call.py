"""The launch that the kernels of all_reduce share: the parts of the blocks, and the memory of all ranks."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.contract import check_all_reduce
from cuda_ref._runtime.symmetric import MAX_BLOCKS, workspace

BLOCKS = {"cuda": MAX_BLOCKS, "cpu": 2}
"""Blocks of every call: a block meets the same one of the other ranks, so all calls have as many."""


def aligned(x: Tensor) -> Tensor:
    """x, contiguous, at a multiple of 16 bytes."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else torch.empty_like(x).copy_(x)


def reduced(source: str | Path, x: Tensor, group: dist.ProcessGroup, buffers: int) -> Tensor:
    """The sum of x over the ranks of `group` by the kernel of `source`, with memory for `buffers` vectors."""
    check_all_reduce("all_reduce", x)
    (N,) = x.shape
    out = torch.empty(N, dtype=x.dtype, device=x.device)
    if N == 0:
        return out
    x = aligned(x)
    blocks, ranks = BLOCKS[x.device.type], group.size()
    packs = -(-N * x.element_size() // 16)
    packs_of_block = -(-packs // (blocks * ranks)) * ranks
    size = 16 * packs_of_block * blocks
    memory = workspace(group, x.device, buffers * size)
    build.launch(
        source, "all_reduce", x.device,
        x, out, memory.addresses, memory.rank, ranks, blocks, N, packs_of_block,
        memory.data_bytes // 2, size, build.DTYPES[x.dtype],
    )  # fmt: skip
    return out
