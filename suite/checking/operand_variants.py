"""Operands as a kernel with a usual mistake reads them: other strides, one entry for all, a tail of zeros.

The mistakes follow from the shapes and the layout of the operands, so they hold for any operation. The operation's own
truth of the changed operands is the variant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

import torch

from suite.problem.variant import Inputs
from suite.variants._strides import read_at, read_with_strides, row_major

ALIGNMENTS = (8, 16)
"""Bytes to which a kernel may round the address of an operand down."""
OFFSET_BITS = (16, 32)
"""Bits to which a kernel may cut offsets."""
BLOCKS = (4, 8, 16, 64, 128)
"""Blocks of an axis whose rest may be left out."""
Changed = tuple[str, Inputs]
"""A mistake, and the operands that the kernel reads instead."""
Readings = Mapping[str, torch.Tensor]
"""The mistaken reading of one operand, by the mistake: `{0} was read as if it was contiguous`."""


def changed_operands(inputs: Inputs, names: Sequence[str], axes: Sequence[Sequence[str]]) -> Iterator[Changed]:
    """Yield the usual mistakes in reading operands: in one operand, and in all operands that may have the mistake.

    names: of the operands. axes: the dimension of each axis of each operand. Operands of integers are left alone.
    """
    for kind in (_single_entries, _layouts, _addresses, _tails):
        yield from _one_and_all(inputs, names, axes, kind)


def _one_and_all(
    inputs: Inputs, names: Sequence[str], axes: Sequence[Sequence[str]], kind: Callable[..., Readings]
) -> Iterator[Changed]:
    found = [
        kind(x, each, [other for other in inputs if other is not x and other.ndim == x.ndim])
        if x.is_floating_point() and x.numel() and len(each) == x.ndim
        else {}
        for x, each in zip(inputs, axes, strict=True)
    ]
    for position, readings in enumerate(found):
        for mistake, reading in readings.items():
            changed = tuple(reading if i == position else x for i, x in enumerate(inputs))
            yield mistake.format(names[position], "was"), changed
    for mistake in dict.fromkeys(mistake for readings in found for mistake in readings):
        several = [i for i, readings in enumerate(found) if mistake in readings]
        if len(several) > 1:
            changed = tuple(found[i][mistake] if i in several else x for i, x in enumerate(inputs))
            yield mistake.format(_listed([names[i] for i in several]), "were"), changed


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _whole(x: torch.Tensor) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in x.shape)


def _single_entries(x: torch.Tensor, axes: Sequence[str], others: Sequence[torch.Tensor]) -> Readings:
    """One entry of an axis is read for all: only the first batch entry, head or row."""
    return {
        f"{{0}} at {name} = 0 {{1}} read for every {name}": x.narrow(axis, 0, 1).expand(x.shape)
        for axis, name in enumerate(axes)
        if x.shape[axis] > 1 and x.stride(axis)
    }


def _layouts(x: torch.Tensor, axes: Sequence[str], others: Sequence[torch.Tensor]) -> Readings:
    """Strides that an operand does not have."""
    own, dense = x.stride(), row_major(x.shape)
    strides: dict[tuple[int, ...], str] = {dense: "{0} {1} read as if it was contiguous"}
    for one, other in combinations(range(x.ndim), 2):
        exchanged = list(own)
        exchanged[one], exchanged[other] = own[other], own[one]
        both = f"{axes[one]} and {axes[other]}"
        strides.setdefault(tuple(exchanged), f"{{0}} {{1}} read with the strides of {both} exchanged")
        strides.setdefault(_stored_exchanged(x.shape, one, other), f"{{0}} {{1}} read as if {both} were exchanged")
    for other in others:
        strides.setdefault(tuple(other.stride()), "{0} {1} read with the strides of another operand")
    for axis, name in enumerate(axes):
        for stride in _near_strides(x, axis, others):
            changed = tuple(stride if i == axis else each for i, each in enumerate(own))
            strides.setdefault(changed, f"{{0}} {{1}} read {stride} apart along {name}, not {own[axis]}")
    same = [i for i, size in enumerate(x.shape) if size > 1]
    return {
        mistake: read_with_strides(x, each, _whole(x)).to(x.dtype)
        for each, mistake in strides.items()
        if any(each[i] != own[i] for i in same)
    }


def _stored_exchanged(shape: Sequence[int], one: int, other: int) -> tuple[int, ...]:
    """Return the strides of a dense array whose axes `one` and `other` are stored in each other's place."""
    order = list(range(len(shape)))
    order[one], order[other] = other, one
    found = [0] * len(shape)
    for place, axis in enumerate(order):
        found[axis] = math.prod(shape[each] for each in order[place + 1 :])
    return tuple(found)


def _near_strides(x: torch.Tensor, axis: int, others: Sequence[torch.Tensor]) -> list[int]:
    """Return strides that a kernel may take for the stride of an axis: the dense one, also with an axis forgotten, and
    the strides of other operands, as they are or dense."""
    inner = x.shape[axis + 1 :]
    found = [math.prod(inner), *(math.prod(inner) // size for size in inner if size)]
    for other in others:
        found += [other.stride(axis), math.prod(other.shape[axis + 1 :])]
    return [each for each in dict.fromkeys(found) if each != x.stride(axis)]


def _addresses(x: torch.Tensor, axes: Sequence[str], others: Sequence[torch.Tensor]) -> Readings:
    """An address rounded down, or offsets cut to few bits, without or with a sign."""
    found = {}
    for alignment in ALIGNMENTS:
        elements = max(1, alignment // x.element_size())
        before = x.storage_offset() % elements
        if before:
            read = read_with_strides(x, x.stride(), _whole(x), shift=-before).to(x.dtype)
            found[f"{{0}} {{1}} read from an address rounded down to {alignment} bytes"] = read
    offsets = _offsets(x)
    last = int(offsets.max())
    for bits in OFFSET_BITS:
        count, half = 1 << bits, 1 << (bits - 1)
        if last >= count:
            found[f"{{0}} {{1}} read at offsets cut to {bits} bits"] = read_at(x, offsets % count).to(x.dtype)
        if last >= half:
            read = read_at(x, (offsets + half) % count - half).to(x.dtype)
            found[f"{{0}} {{1}} read at offsets of {bits} bits with a sign"] = read
    return found


def _offsets(x: torch.Tensor) -> torch.Tensor:
    """Return the offset of each element from the first."""
    offsets = torch.zeros((), dtype=torch.int64, device=x.device)
    for size, stride in zip(x.shape, x.stride(), strict=True):
        offsets = offsets[..., None] + torch.arange(size, device=x.device) * stride
    return offsets


def _tails(x: torch.Tensor, axes: Sequence[str], others: Sequence[torch.Tensor]) -> Readings:
    """The end of an axis is read as zeros."""
    found = {}
    for axis, name in enumerate(axes):
        size = x.shape[axis]
        whole_blocks = (size // block * block for block in BLOCKS)
        for kept in sorted({each for each in (size - 1, *BLOCKS[2:], *whole_blocks) if 0 < each < size}):
            read = x.clone(memory_format=torch.contiguous_format)
            read.narrow(axis, kept, size - kept).zero_()
            last = f"the last {size - kept}" if size - kept > 1 else "the last"
            found[f"{{0}} {{1}} read as 0 in {last} of {name}"] = read
    return found
