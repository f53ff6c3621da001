"""A reduce-scatter and an all-gather in packets, the launches of _shares.cu: one kernel, which waits only for data."""

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from cuda_ref import build
from cuda_ref._runtime.symmetric import workspace
from cuda_ref.all_reduce._call import BLOCKS, aligned

PACK = 16
"""Bytes. A share fills whole packs."""
START_US, BYTES_PER_US = 5.0, 3e5
"""Time and rate of a call: over two H100, cuda/packets sums 64 KiB in 5.7 us and 16 MiB in 61.4 us."""


def reduce_scatter(x: Float[Tensor, "ranks*M N"], group: dist.ProcessGroup) -> Float[Tensor, "M N"]:
    """The sum over the ranks of this rank's M rows of x, in float32, in the order of the ranks, rounded once.

    x: contiguous, at a multiple of 16 bytes, not empty; M N elements fill whole packs.
    Raises: NotImplementedError for more than 16 ranks; build.CudaError if the launch fails.
    """
    out = torch.empty(x.shape[0] // group.size(), x.shape[1], dtype=x.dtype, device=x.device)
    _launch("reduce_scatter", x, out, out, group)
    return out


def all_gather(x: Float[Tensor, "M K"], group: dist.ProcessGroup) -> Float[Tensor, "ranks*M K"]:
    """The rows of x of all ranks, in their order. Pairs of elements of 16 bits that are (0, -0) become (0, 0).

    x: any strides, not empty. Raises: as `reduce_scatter`.
    """
    count, lanes = x.numel(), PACK // x.element_size()
    if padding := -count % lanes:
        share = torch.nn.functional.pad(x.reshape(-1), (0, padding))[None]
        return all_gather(share, group)[:, :count].reshape(-1, x.shape[1])
    out = torch.empty(group.size() * x.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
    _launch("all_gather", aligned(x), out, x, group)
    return out


def _launch(function: str, x: Tensor, out: Tensor, share: Tensor, group: dist.ProcessGroup) -> None:
    ranks, slot = group.size(), share.numel() * share.element_size() // PACK
    memory = workspace(group, x.device, 2 * ranks * PACK * slot, "packets")  # 0 between calls, as packets.cu leaves it
    build.launch(
        "all_reduce/_shares", function, x.device,
        x, out, memory.addresses, memory.rank, ranks, BLOCKS[x.device.type], ranks * share.numel(), slot,
        memory.data_bytes // 2, build.DTYPES[x.dtype],
    )  # fmt: skip
