"""Memory of every rank of a process group that each of them can read and write.

On GPUs this is torch's symmetric memory, mapped over NVLink. On a CPU it is a file in shared memory, mapped by all.
Kernels find the memory of all ranks by a table of addresses. Its first HEADER bytes are theirs to synchronize with:
flags of each block, and a word of each block: which half of the data the next call uses, or the number of calls.

This file is the same in cuda_ref/ and triton_kernels/. Edit cuda_ref/_runtime/symmetric.py and copy it to the other;
a test compares them.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

MAX_BLOCKS, MAX_RANKS = 64, 16
HEADER = 4 * MAX_BLOCKS * (MAX_RANKS + 1)
"""Bytes before the data: an int32 flag for each block and rank, then an int32 word for each block.

All memory is 0 at first.
"""
SMALLEST = 1 << 20


class Workspace(NamedTuple):
    """The memory of all ranks, as this rank maps it."""

    addresses: Tensor
    """int64, on the device: where the memory of each rank begins."""
    rank: int
    ranks: int
    data_bytes: int
    """Bytes of each rank after the header."""
    views: tuple[Tensor, ...]
    """The memory of each rank, as bytes."""
    meet: Callable[[], Any]
    """Queues a wait for all ranks on the current stream; on a CPU it waits."""


_workspaces: dict[tuple[str, torch.device, int, str], Workspace] = {}
_turns: dict[tuple[str, torch.device, int, str], int] = {}
"""The half of the memory, 0 or 1, that the last call used."""
_streams_of: dict[torch.device, tuple[torch.cuda.Stream, torch.cuda.Stream]] = {}


def workspace(group: dist.ProcessGroup, device: torch.device, data_bytes: int, use: str = "") -> Workspace:
    """The memory of the ranks of `group` for at least `data_bytes` each. Each `use` has memory of its own.

    It is kept for later calls: kernels leave its header usable. All ranks of the group call this in the same order,
    with the same sizes.
    Raises: NotImplementedError for more than MAX_RANKS ranks.
    """
    if group.size() > MAX_RANKS:
        raise NotImplementedError(f"symmetric memory: at most {MAX_RANKS} ranks; the group has {group.size()}")
    size = max(SMALLEST, 1 << (data_bytes - 1).bit_length()) if data_bytes else SMALLEST
    key = group.group_name, device, size, use
    if key not in _workspaces:
        make = _on_gpus if device.type == "cuda" else _on_cpus
        _workspaces[key] = make(group, device, size)
    return _workspaces[key]


def _on_gpus(group: dist.ProcessGroup, device: torch.device, size: int) -> Workspace:
    from torch.distributed import _symmetric_memory

    memory = _symmetric_memory.empty(HEADER + size, dtype=torch.uint8, device=device)
    handle = _symmetric_memory.rendezvous(memory, group)
    memory.zero_()
    addresses = torch.tensor(list(handle.buffer_ptrs), dtype=torch.int64, device=device)
    torch.cuda.synchronize(device)
    dist.barrier(group)  # no rank writes flags before all are 0
    torch.cuda.synchronize(device)
    views = tuple(
        memory if rank == group.rank() else handle.get_buffer(rank, (HEADER + size,), torch.uint8)
        for rank in range(group.size())
    )
    return Workspace(addresses, group.rank(), group.size(), size, views, handle.barrier)


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
    return Workspace(addresses, group.rank(), group.size(), size, tuple(maps), lambda: dist.barrier(group))


def as_they_arrive(
    xs: Sequence[Tensor], use: Callable[..., object], group: dist.ProcessGroup, *, chained: bool = False
) -> None:
    """Calls use(rank, *xs of that rank) for each rank, this one first, so that work on one hides the copy of the next.

    xs: tensors of one shape and dtype, the same on all ranks. Those of other ranks are contiguous, lie at multiples of
    256 bytes, and stay until the next call but one. `use` queues work on the current stream.
    chained: each call needs the result of the one before. Other calls alternate between two streams: blocks of one
    begin on multiprocessors that the last blocks of the one before leave idle.
    On a GPU each rank sends its tensors by copies that need no multiprocessor, on a stream of their own. Kernels by
    which the ranks meet do need one, and wait for persistent kernels, so none stands before a copy. A CUDA graph cannot
    repeat this: calls use the halves of the memory in turns, which the host counts.
    """
    xs, ranks, rank, device = [x.contiguous() for x in xs], group.size(), group.rank(), xs[0].device
    count, of_rank = xs[0].numel(), len(xs) * 256 * -(-xs[0].numel() * xs[0].element_size() // 256)
    memory = workspace(group, device, 2 * ranks * of_rank, "arriving")
    begin = HEADER + _turn(group, device, memory, "arriving") * memory.data_bytes // 2

    def places(of: int, sender: int) -> Tensor:
        """The memory of rank `of` that receives the tensors of `sender`."""
        start = begin + sender * of_rank
        every = memory.views[of][start : start + of_rank].view(xs[0].dtype).view(len(xs), -1)
        return every[:, :count].unflatten(1, xs[0].shape)

    def send(step: int) -> None:
        to = (rank - step) % ranks
        for place, x in zip(places(to, rank), xs, strict=True):
            place.copy_(x)

    if device.type == "cpu":
        for step in range(1, ranks):
            send(step)
        memory.meet()
        for step in range(ranks):
            sender = (rank + step) % ranks
            use(sender, *(xs if step == 0 else places(rank, sender)))
        return
    current, (copies, side) = torch.cuda.current_stream(device), _streams(device)
    current.wait_stream(copies)  # an earlier call may have used another stream
    copies.wait_stream(current)
    sent = []
    with torch.cuda.stream(copies):
        for step in range(1, ranks):
            send(step)
            sent.append(copies.record_event())
    use(rank, *xs)
    met = None
    for step, event in enumerate(sent, 1):
        stream, sender = side if step % 2 and not chained else current, (rank + step) % ranks
        for earlier in (event, met):
            if earlier is not None:
                stream.wait_event(earlier)
        with torch.cuda.stream(stream):
            memory.meet()
            met = stream.record_event()
            use(sender, *places(rank, sender))
    current.wait_stream(side)
    copies.wait_stream(current)


def all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Gathers x (M, K) of all ranks, in their order: (ranks M, K). One kernel reads them all.

    A CUDA graph cannot repeat this: see `as_they_arrive`.
    """
    memory, _, shared = shares(x.shape, x.dtype, x.device, group, "gathered")
    shared[memory.rank].copy_(x)
    memory.meet()
    return torch.cat(shared)


def shares(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, group: dist.ProcessGroup, use: str
) -> tuple[Workspace, int, list[Tensor]]:
    """The tensor that each rank has for the others, in the half of this call, and the byte of the data where it begins.

    The ranks must meet after they have written it, in each call: see `_turn`.
    """
    count = math.prod(shape) * dtype.itemsize
    memory = workspace(group, device, 512 * -(-count // 256), use)
    start = _turn(group, device, memory, use) * memory.data_bytes // 2
    begin = HEADER + start
    return memory, start, [each[begin : begin + count].view(dtype).view(shape) for each in memory.views]


def all_to_all(
    product: Callable[[int, Tensor], None],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    group: dist.ProcessGroup,
) -> Tensor:
    """Sends a product to each rank. Returns those that the ranks computed for this one, by rank: (ranks, *shape).

    product(rank, into) queues the product for `rank`, which writes to `into`, contiguous. This rank's product comes
    last, so that each product hides the copy of the one before. On a GPU the copies run on a stream of their own, and
    the current stream waits for all. Products lie at multiples of 256 bytes, and stay until the next call but one. A
    CUDA graph cannot repeat this: see `as_they_arrive`.
    """
    ranks, rank = group.size(), group.rank()
    count = math.prod(shape)
    size = 256 * -(-count * dtype.itemsize // 256)
    memory = workspace(group, device, 2 * ranks * size, "all_to_all")
    begin = HEADER + _turn(group, device, memory, "all_to_all") * memory.data_bytes // 2

    def place(of: int) -> Tensor:
        """The memory of rank `of` that receives the products of all ranks."""
        every = memory.views[of][begin : begin + ranks * size].view(dtype).view(ranks, -1)
        return every[:, :count].unflatten(1, shape)

    on_gpu = device.type == "cuda"
    current, copies = (torch.cuda.current_stream(device), _streams(device)[0]) if on_gpu else (None, None)
    for step in range(1, ranks):
        to = (rank + step) % ranks
        leaving = torch.empty(shape, dtype=dtype, device=device)
        product(to, leaving)
        if current is None or copies is None:
            place(to)[rank].copy_(leaving)
            continue
        copies.wait_event(current.record_event())
        with torch.cuda.stream(copies):
            place(to)[rank].copy_(leaving)
        leaving.record_stream(copies)
    if current is None or copies is None:
        product(rank, place(rank)[rank])
        memory.meet()
        return place(rank)
    with torch.cuda.stream(copies):
        memory.meet()
        met = copies.record_event()
    product(rank, place(rank)[rank])
    current.wait_event(met)
    return place(rank)


def all_reduce_async(
    x: Tensor, add: Callable[[Tensor, Tensor], None], group: dist.ProcessGroup
) -> Callable[[], Tensor]:
    """Starts the sum of x, contiguous, over all ranks. Returns a function that waits for the sum and returns it.

    Work that the caller queues in between hides the sum; copies take no multiprocessor. Each rank adds one share of all
    vectors by `add(parts, out)`, parts (ranks, n), and sends its sum to all others. On a GPU
    everything runs on the stream of the copies, and the current stream waits. Shares lie at multiples of 256 bytes. A
    CUDA graph cannot repeat this: see `as_they_arrive`.
    """
    n, ranks, rank = x.numel(), group.size(), group.rank()
    if n == 0:
        return x.clone
    step = 256 // x.element_size()
    share = step * -(-n // (step * ranks))
    size = share * x.element_size()
    memory = workspace(group, x.device, 4 * ranks * size, "reduced")
    begin = HEADER + _turn(group, x.device, memory, "reduced") * memory.data_bytes // 2
    ends = [min(each * share, n) for each in range(ranks + 1)]

    def places(of: int) -> Tensor:
        """The memory of rank `of`: a share of each rank's vector, then the sums of all shares."""
        return memory.views[of][begin : begin + 2 * ranks * size].view(x.dtype).view(2, ranks, share)

    on_gpu = x.device.type == "cuda"
    current, copies = (torch.cuda.current_stream(x.device), _streams(x.device)[0]) if on_gpu else (None, None)
    if current is not None and copies is not None:
        copies.wait_stream(current)
        x.record_stream(copies)
    with nullcontext() if copies is None else torch.cuda.stream(copies):
        for to in range(ranks):
            places(to)[0, rank, : ends[to + 1] - ends[to]].copy_(x.view(-1)[ends[to] : ends[to + 1]])
        memory.meet()
        mine = x.new_empty(ends[rank + 1] - ends[rank])
        add(places(rank)[0, :, : mine.numel()], mine)
        for to in range(ranks):
            places(to)[1, rank, : mine.numel()].copy_(mine)
        memory.meet()
        found = places(rank)[1].view(-1)[:n].view(x.shape).clone()
        done = None if copies is None else copies.record_event()

    def wait() -> Tensor:
        if current is not None and done is not None:
            current.wait_event(done)
            found.record_stream(current)
        return found

    return wait


def _turn(group: dist.ProcessGroup, device: torch.device, memory: Workspace, use: str) -> int:
    """The half of the memory, 0 or 1, that this call uses.

    All ranks meet in each call. When a rank begins a call, the others have therefore left the call before the last,
    which used the same half.
    """
    key = group.group_name, device, memory.data_bytes, use
    _turns[key] = 1 - _turns.get(key, 1)
    return _turns[key]


def _streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """The stream of a GPU on which copies between ranks run, and one beside the current stream for kernels."""
    if device not in _streams_of:
        _streams_of[device] = torch.cuda.Stream(device, priority=-1), torch.cuda.Stream(device)
    return _streams_of[device]
