"""Mistakes in how a kernel reads an operand: with other strides, a rounded pointer, or offsets of few bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

Strides = tuple[int, ...]
Reading = Callable[[torch.Tensor], torch.Tensor]


def contiguous_strides(shape: Sequence[int]) -> Strides:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def read(operand: torch.Tensor, strides: Strides, start: int = 0, wrap: Callable[..., torch.Tensor] | None = None):
    """Return the operand as if it had these strides and began `start` elements later. Offsets stay in its memory."""
    if not operand.numel():
        return operand
    memory = torch.empty(0, dtype=operand.dtype, device=operand.device).set_(operand.untyped_storage())
    offsets = torch.zeros((), dtype=torch.int64, device=operand.device)
    for axis, (size, stride) in enumerate(zip(operand.shape, strides, strict=True)):
        along = torch.arange(size, device=operand.device) * stride
        offsets = offsets + along.view([-1 if other == axis else 1 for other in range(operand.ndim)])
    offsets = offsets if wrap is None else wrap(offsets)
    return memory[(operand.storage_offset() + start + offsets) % len(memory)]


def as_contiguous(operand: torch.Tensor) -> torch.Tensor:
    return read(operand, contiguous_strides(operand.shape))


def broadcast_as_contiguous(operand: torch.Tensor) -> torch.Tensor:
    return as_contiguous(operand) if 0 in operand.stride() else operand


def broadcast_ignored(operand: torch.Tensor) -> torch.Tensor:
    """Strides of 0 are taken for 1."""
    return read(operand, tuple(stride or 1 for stride in operand.stride()))


def transposed_as_contiguous(operand: torch.Tensor) -> torch.Tensor:
    """An operand that is dense with its last two axes swapped is read as contiguous."""
    swapped = operand.ndim > 1 and operand.mT.is_contiguous() and min(operand.shape[-2:]) > 1
    return as_contiguous(operand) if swapped else operand


def contiguous_as_transposed(operand: torch.Tensor) -> torch.Tensor:
    """A dense operand is read as if its last two axes were swapped in memory."""
    if operand.ndim < 2 or not operand.is_contiguous() or min(operand.shape[-2:]) < 2:
        return operand
    return operand.reshape(*operand.shape[:-2], *operand.shape[:-3:-1]).mT


def last_stride_of_1(operand: torch.Tensor) -> torch.Tensor:
    return read(operand, (*operand.stride()[:-1], 1))


def rows_without_gaps(operand: torch.Tensor) -> torch.Tensor:
    """The stride of the axis before the last is taken for the size of the last."""
    if operand.ndim < 2:
        return operand
    strides = list(operand.stride())
    strides[-2] = operand.shape[-1] * strides[-1]
    return read(operand, tuple(strides))


def outer_stride_from_sizes(operand: torch.Tensor) -> torch.Tensor:
    if operand.ndim < 3:
        return operand
    return read(operand, (contiguous_strides(operand.shape)[0], *operand.stride()[1:]))


def strides_exchanged(operand: torch.Tensor) -> torch.Tensor:
    """The strides of the last two axes are exchanged where the last one is not 1."""
    if operand.ndim < 2 or operand.stride(-1) == 1:
        return operand
    *outer, row, column = operand.stride()
    return read(operand, (*outer, column, row))


def pointer_rounded_down(operand: torch.Tensor) -> torch.Tensor:
    """The address is rounded down to a multiple of 16 bytes."""
    behind = operand.data_ptr() % 16 // operand.element_size()
    return read(operand, operand.stride(), -behind) if behind else operand


def offsets_of(bits: int, *, signed: bool) -> Reading:
    """Offsets wrap around at so many bits."""
    half = 1 << (bits - 1) if signed else 0

    def wrapped(operand: torch.Tensor) -> torch.Tensor:
        return read(operand, operand.stride(), wrap=lambda offsets: (offsets + half) % (1 << bits) - half)

    return wrapped


READINGS: dict[str, tuple[int, Reading]] = {
    "read as contiguous": (1, as_contiguous),
    "broadcast read as contiguous": (1, broadcast_as_contiguous),
    "strides of 0 taken for 1": (1, broadcast_ignored),
    "transposed read as contiguous": (2, transposed_as_contiguous),
    "contiguous read as transposed": (2, contiguous_as_transposed),
    "last stride taken for 1": (1, last_stride_of_1),
    "rows taken for dense": (2, rows_without_gaps),
    "outer stride from the sizes": (3, outer_stride_from_sizes),
    "last two strides exchanged": (2, strides_exchanged),
    "pointer rounded down to 16 bytes": (1, pointer_rounded_down),
    "offsets of int16": (1, offsets_of(16, signed=True)),
    "offsets of uint16": (1, offsets_of(16, signed=False)),
    "offsets of int32": (1, offsets_of(32, signed=True)),
}
"""Mistakes by name, each with the fewest axes that an operand must have for it."""
