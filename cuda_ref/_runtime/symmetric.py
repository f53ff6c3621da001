"""Memory of every rank of a process group that each of them can read and write.

On GPUs this is torch's symmetric memory, mapped over NVLink. On a CPU it is a file in shared memory, mapped by all.
Kernels find the memory of all ranks by a table of addresses. They synchronize by its first HEADER bytes: flags of each
block, and a word of each block that counts calls. The lowest bit of the count is the half that a call uses.

This file is the same in cuda_ref/ and triton_kernels/. Edit cuda_ref/_runtime/symmetric.py and copy it to the other;
a test compares them.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
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
    addresses.points_to = tuple(maps)  # type: ignore[attr-defined]  # for checked launches
    return Workspace(addresses, group.rank(), group.size(), size, tuple(maps), lambda: dist.barrier(group))


def as_they_arrive(
    xs: Sequence[Tensor], use: Callable[..., object], group: dist.ProcessGroup, *, chained: bool = False
) -> None:
    """Calls use(rank, *xs of that rank) for each rank, this one first, so that work on one hides the copy of the next.

    xs: tensors of one shape and dtype, the same on all ranks. Those of other ranks are contiguous, lie at multiples of
    256 bytes, and stay until the next call but one. `use` queues work on the current stream.
    chained: each call needs the result of the one before. If it does not, calls alternate between two streams: blocks
    of one call begin on multiprocessors that the last blocks of the call before leave idle.
    On a GPU each rank sends its tensors by copies on a separate stream, which need no multiprocessor. No copy waits for
    a kernel in which the ranks meet: such a kernel needs a multiprocessor, and may wait for a persistent kernel.
    A CUDA graph cannot repeat this: calls use the halves of the memory in turns, which the host counts.
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


def all_reduce_during(
    xs: Sequence[Tensor],
    add: Callable[[Tensor, Tensor], None],
    product: Callable[[slice], object],
    M: int,
    group: dist.ProcessGroup,
) -> list[Tensor]:
    """The sums of xs, each contiguous, over all ranks. Two calls of product(rows) hide the copies between the ranks.

    product(rows) queues these rows out of M. Each rank adds one share of all vectors by `add(parts, out)`, parts
    (ranks, n). During the first half of the rows the ranks send each other these shares, during the second half they
    fetch the sums. On a GPU the copies need no multiprocessor and have a stream of their own. The ranks meet and add on
    the current stream, between the halves: on another stream, these kernels would wait for persistent kernels to end.
    A CUDA graph cannot repeat this: see `as_they_arrive`.
    """
    exchange = _exchange(xs, group)
    half = min(128 * -(-M // 256), M)  # whole tiles
    first, second = slice(0, half), slice(half, M)
    device = xs[0].device
    if device.type == "cpu":
        exchange.send()
        product(first)
        exchange.meet_and_add(add)
        exchange.fetch()
        if half < M:
            product(second)
        return exchange.sums
    current, copies = torch.cuda.current_stream(device), _streams(device)[0]
    current.wait_stream(copies)  # an earlier call may have used another stream
    copies.wait_stream(current)
    with torch.cuda.stream(copies):
        exchange.send()
        sent = copies.record_event()
    product(first)
    current.wait_event(sent)
    exchange.meet_and_add(add)
    copies.wait_event(current.record_event())
    with torch.cuda.stream(copies):
        exchange.fetch()
    if half < M:
        product(second)
    current.wait_stream(copies)
    return exchange.sums


class _Exchange(NamedTuple):
    """Vectors that are summed over the ranks: each rank adds one share. Shares lie at multiples of 256 bytes."""

    xs: Sequence[Tensor]
    sums: list[Tensor]
    memory: Workspace
    shares: list[int]
    """Elements of a share of each vector."""
    begins: list[int]
    """The byte of the memory where the parts of each vector begin, in the half of this call."""

    def share(self, x: Tensor, each: int, of: int) -> Tensor:
        return x.view(-1)[self.shares[each] * of : self.shares[each] * (of + 1)]

    def place(self, of: int, each: int) -> Tensor:
        """In the memory of rank `of`: its share of the vector of each rank, then its sums. (ranks + 1, share)."""
        x, rows = self.xs[each], self.memory.ranks + 1
        count = rows * self.shares[each] * x.element_size()
        return self.memory.views[of][self.begins[each] : self.begins[each] + count].view(x.dtype).view(rows, -1)

    def others_first(self) -> list[int]:
        """The ranks from the next one on: if all began with the same one, it would serve all others at once."""
        rank, ranks = self.memory.rank, self.memory.ranks
        return [(rank + step) % ranks for step in range(1, ranks + 1)]

    def send(self) -> None:
        for to in self.others_first():
            for each, x in enumerate(self.xs):
                share = self.share(x, each, to)
                self.place(to, each)[self.memory.rank, : share.numel()].copy_(share)

    def meet_and_add(self, add: Callable[[Tensor, Tensor], None]) -> None:
        self.memory.meet()
        for each, x in enumerate(self.xs):
            parts = self.place(self.memory.rank, each)[:, : self.share(x, each, self.memory.rank).numel()]
            add(parts[:-1], parts[-1])
        self.memory.meet()

    def fetch(self) -> None:
        for of in self.others_first():
            for each, x in enumerate(self.sums):
                share = self.share(x, each, of)
                share.copy_(self.place(of, each)[-1, : share.numel()])


def _exchange(xs: Sequence[Tensor], group: dist.ProcessGroup) -> _Exchange:
    ranks, device = group.size(), xs[0].device
    steps = [256 // x.element_size() for x in xs]
    shares = [step * max(1, -(-x.numel() // (step * ranks))) for x, step in zip(xs, steps, strict=True)]
    sizes = [(ranks + 1) * share * x.element_size() for x, share in zip(xs, shares, strict=True)]
    memory = workspace(group, device, 2 * sum(sizes), "reduced")
    begin = HEADER + _turn(group, device, memory, "reduced") * memory.data_bytes // 2
    begins = [begin + sum(sizes[:each]) for each in range(len(xs))]
    return _Exchange(xs, [torch.empty_like(x) for x in xs], memory, shares, begins)


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
