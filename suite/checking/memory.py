"""The memory of operands and results: its layout, its guard bands, and writes of a call to other places.

- Bits of results are compared (`same_bits`, `first_difference`).
- Operands are copied with their strides and gaps, between guard bands (`copies_with_layout`, `copies_with_bands`).
- `MemoryUse` describes the memory that a call uses, and `misuses` lists the faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from suite.core.integers import index_at
from suite.problem import far
from suite.problem.guard_bands import BAND_BYTES, bands_intact, copy_between_bands, has_bands, view_between_bands
from suite.problem.outputs import located

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by size in bytes, for comparing bits."""
HEAD = 4096
"""Elements that are compared first, since results that differ mostly differ there."""
SHARED = "two calls returned the same memory, while the first result was still in use"
UNFINISHED = "the result changed after the current stream had passed it: work on another stream, thread or process"


class MemoryUse(Protocol):
    """The memory that a call used for its results."""

    ranges: tuple[tuple[int, int], ...]
    """Addresses of each result: of its first byte, and of the byte after its last."""
    alias: int | None
    """Position of the input whose memory holds a result; None if there is none."""
    unfinished: bool
    """True if the result still changed after the stream of the call had passed it."""
    spilled: bool
    """True if the call wrote to the guard bands around its results."""


def misuses(
    used: MemoryUse, buffers: Sequence[torch.Tensor], changed: Sequence[int], earlier: Sequence[MemoryUse]
) -> dict[str, str]:
    """Return the faults of a call's use of memory: a sentence by kind of refusal; empty if there are none.

    buffers: the inputs, between guard bands. changed: positions of the buffers whose contents the call changed.
    earlier: the memory of earlier calls, whose results are still in use.
    """
    wrong = {}
    if used.unfinished:
        wrong["unfinished"] = UNFINISHED
    if used.alias is not None:
        wrong["aliases input"] = f"the result lies in the memory of argument {used.alias + 1}"
    if used.spilled:
        wrong["wrote outside"] = "the call wrote to memory beside its result"
    beside = [position for position in changed if not bands_intact(buffers[position])]
    if beside:
        wrong["wrote outside"] = f"the call wrote to memory beside argument {beside[0] + 1}"
    elif changed:
        wrong["inputs changed"] = f"the call wrote to argument {changed[0] + 1}"
    if share(used, earlier):
        wrong["same buffer"] = SHARED
    return wrong


def share(used: MemoryUse, earlier: Sequence[MemoryUse]) -> bool:
    """True if a result lies in the memory of an earlier one."""
    ranges = [each for other in earlier for each in other.ranges]
    return any(_overlap(mine, other) for mine in used.ranges for other in ranges)


def alias(outputs: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor]) -> int | None:
    """Return the position of the last buffer whose memory holds an output; None if there is none."""
    found = None
    for position, buffer in enumerate(buffers):
        storage = buffer.untyped_storage()
        memory = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        if any(_overlap(address_range(output), memory) for output in outputs):
            found = position
    return found


def spilled(outputs: Sequence[torch.Tensor]) -> bool:
    """True if a guard band of an output was written to. Outputs without bands are skipped."""
    return any(has_bands(output) and not bands_intact(output) for output in outputs)


def address_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of a contiguous tensor's first byte and of the byte after its last; (0, 0) if it has none."""
    if tensor.numel() == 0:
        return 0, 0
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two contiguous tensors of one dtype are equal to the bit. Any NaN equals any other NaN."""
    integer = INTEGERS[a.element_size()]
    if torch.equal(a.view(integer), b.view(integer)):
        return True
    return a.shape == b.shape and bool(((a.view(integer) == b.view(integer)) | (a.isnan() & b.isnan())).all())


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two contiguous tensors have the same form, device and bits. Two NaN of different bits differ."""
    if (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
        return False
    a, b = (each.view(INTEGERS[each.element_size()]).reshape(-1) for each in (a, b))
    return bool(torch.equal(a[:HEAD], b[:HEAD]) and torch.equal(a, b))


def first_difference(a: torch.Tensor, b: torch.Tensor, position: Callable[[tuple[int, ...]], str] = located) -> str:
    """Return a sentence with the first position where two results of the same inputs differ, and both values.

    a, b: contiguous, of one dtype and shape; bits are compared. position: turns an index into words.
    """
    integer = INTEGERS[a.element_size()]
    differs = (a.view(integer) != b.view(integer)) & ~(a.isnan() & b.isnan())
    flat = int(differs.reshape(-1).to(torch.uint8).argmax())
    at = position(index_at(flat, a.shape))
    got, before = (float(t.reshape(-1)[flat]) for t in (a, b))
    return f"at {at} {got:.9g}, but {before:.9g} in an earlier call with the same inputs"


def copies_with_layout(
    tensors: Sequence[torch.Tensor], allocate: Callable[[int, int], torch.Tensor] | None = None
) -> tuple[torch.Tensor, ...]:
    """Copy tensors to new memory with the same offsets and strides. Copies share memory where the tensors do.

    allocate: returns memory of a size in bytes, as a tensor that fills its storage; the second argument is the size of
    the block behind it on a GPU (`far.block_of`), or 0.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    copies = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in storages:
            size = storage.nbytes()
            memory = far.memory_like(tensor, size) if allocate is None else allocate(size, far.block_of(tensor))
            storages[address] = memory.untyped_storage()
        copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        copy.set_(storages[address], tensor.storage_offset(), tensor.shape, tensor.stride())
        whole_storage(copy).copy_(whole_storage(tensor))
        copies.append(copy)
    return tuple(copies)


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of the storage behind `tensor` as a vector of the widest integers that divide its size.

    If slices lie far apart (`suite/problem/far.py`), return only these.
    """
    slices = far.slices(tensor)
    if slices is not None:
        return slices.view(INTEGERS[tensor.element_size()])
    storage = tensor.untyped_storage()
    everything = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
    return everything.view(INTEGERS[math.gcd(8, storage.nbytes())])


def copies_with_bands(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Copy tensors as `copies_with_layout` does, with a guard band before and after each storage."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = copy_between_bands(tensor).untyped_storage()
        copies.append(view_between_bands(storages[storage.data_ptr()], tensor))
    return tuple(copies)


def elements_between_bands(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements between the guard bands of a storage as a vector; with far slices only these."""
    slices = far.slices(tensor)
    if slices is not None:
        return slices
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    flat.set_(tensor.untyped_storage())  # type: ignore[call-overload]
    return flat[BAND_BYTES // flat.element_size() : -BAND_BYTES // flat.element_size()]


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True if an array has no gaps and no overlaps, with its axes stored in any order."""
    order = sorted(range(len(shape)), key=lambda axis: (strides[axis], shape[axis]), reverse=True)
    return is_row_major(tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order))


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True if `strides`, in elements, describe a C array. Dimensions of 1 and empty arrays may have any strides."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step and 0 not in shape:
            return False
        step *= size
    return True
