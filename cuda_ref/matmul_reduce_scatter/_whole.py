"""One product of the rows of all ranks, in memory that they can read, then one kernel that adds this rank's rows."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from cuda_ref._runtime.symmetric import shares
from cuda_ref.all_reduce._add_peers import add_peers

PACK = 16  # bytes: each rank's rows begin at a multiple of this


def summed(
    product: Callable[[Tensor], object],
    M: int,
    N: int,
    dtype: torch.dtype,
    device: torch.device,
    group: dist.ProcessGroup,
) -> Tensor:
    """The sum of M rows of the products of all ranks, (M, N), not empty. M N elements fill whole packs.

    product(into) queues the product of this rank, which writes to `into`, (ranks M, N), contiguous. A CUDA graph cannot
    repeat this: see `symmetric.as_they_arrive`.
    """
    memory, start, every = shares((group.size() * M, N), dtype, device, group, "whole")
    product(every[memory.rank])
    out = torch.empty(M, N, dtype=dtype, device=device)
    add_peers(memory, start + memory.rank * M * N * dtype.itemsize, out)
    return out
