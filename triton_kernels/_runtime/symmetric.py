"""Memory of every rank of a process group that each of them can read and write.

On GPUs this is torch's symmetric memory, mapped over NVLink. On a CPU it is a file in shared memory, mapped by all.
Kernels find the memory of all ranks by a table of addresses. Its first HEADER bytes are theirs to synchronize with:
flags of each block, and a word of each block that says which half of the data the next call uses.

This file is the same in cuda_ref/ and triton_kernels/. Edit cuda_ref/_runtime/symmetric.py and copy it to the other;
a test compares them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

MAX_BLOCKS, MAX_RANKS = 64, 16
HEADER = 4 * MAX_BLOCKS * (MAX_RANKS + 1)
"""Bytes before the data: an int32 flag for each block and rank, then an int32 word for each block; all 0 at first."""
SMALLEST = 1 << 20


class Workspace(NamedTuple):
    """The memory of all ranks, as this rank maps it."""

    addresses: Tensor
    """int64, on the device: where the memory of each rank begins."""
    rank: int
    ranks: int
    data_bytes: int
    """Bytes of each rank after the header."""
    kept: tuple[Any, ...]
    """Objects that keep the memory mapped."""


_workspaces: dict[tuple[str, torch.device, int], Workspace] = {}


def workspace(group: dist.ProcessGroup, device: torch.device, data_bytes: int) -> Workspace:
    """The memory of the ranks of `group` for at least `data_bytes` each. It is kept: kernels leave its header usable.

    All ranks of the group call this in the same order, with the same sizes.
    Raises: NotImplementedError for more than MAX_RANKS ranks.
    """
    if group.size() > MAX_RANKS:
        raise NotImplementedError(f"symmetric memory: at most {MAX_RANKS} ranks; the group has {group.size()}")
    size = max(SMALLEST, 1 << (data_bytes - 1).bit_length()) if data_bytes else SMALLEST
    key = group.group_name, device, size
    if key not in _workspaces:
        make = _on_gpus if device.type == "cuda" else _on_cpus
        _workspaces[key] = make(group, device, size)
    return _workspaces[key]


def _on_gpus(group: dist.ProcessGroup, device: torch.device, size: int) -> Workspace:
    from torch.distributed import _symmetric_memory

    memory = _symmetric_memory.empty(HEADER + size, dtype=torch.uint8, device=device)
    handle = _symmetric_memory.rendezvous(memory, group)
    memory[:HEADER].zero_()
    addresses = torch.tensor(list(handle.buffer_ptrs), dtype=torch.int64, device=device)
    torch.cuda.synchronize(device)
    dist.barrier(group)  # no rank writes flags before all are 0
    torch.cuda.synchronize(device)
    return Workspace(addresses, group.rank(), group.size(), size, (memory, handle))


def _on_cpus(group: dist.ProcessGroup, device: torch.device, size: int) -> Workspace:
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    descriptor, own = tempfile.mkstemp(prefix="symmetric-", dir=folder)
    os.ftruncate(descriptor, HEADER + size)
    os.close(descriptor)
    paths: list[Any] = [None] * group.size()
    try:
        dist.all_gather_object(paths, own, group=group)
        maps = [torch.from_file(path, shared=True, size=HEADER + size, dtype=torch.uint8) for path in paths]
        dist.barrier(group)  # all ranks have mapped all files
    finally:
        os.unlink(own)
    addresses = torch.tensor([each.data_ptr() for each in maps], dtype=torch.int64)
    return Workspace(addresses, group.rank(), group.size(), size, tuple(maps))
