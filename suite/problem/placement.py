"""How an operand is placed in memory: with gaps, misaligned, repeated, transposed.

Each function takes an operand and its position in the signature, and returns a tensor of the same shape. The memory
between and beside its elements is NaN: a kernel that reads outside its operand shows.
"""

from __future__ import annotations

import math

import torch

from suite.problem.shape import Shape


def as_drawn(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Dense and row-major."""
    return operand


def strided(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Of vectors every second, third ... element. Else, by position: rows with a gap after each; every second row and
    third column; every second row; and so on.
    """
    if operand.ndim == 1:
        steps, gap = [position + 2], 0
    else:
        kind = position % 3
        steps, gap = [*[1] * (operand.ndim - 2), *((1, 1), (2, 3), (2, 1))[kind]], 5 if kind == 0 else 0
    spans = [size * step for size, step in zip(operand.shape, steps, strict=True)]
    within = tuple(slice(0, span, step) for span, step in zip(spans, steps, strict=True))
    return _amid_nans(operand, (*spans[:-1], spans[-1] + gap), within)


def misaligned(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Contiguous, and starting one element after a multiple of 16 bytes."""
    count = operand.numel()
    flat = _amid_nans(operand.reshape(-1), (count + 2,), (slice(1, count + 1),))
    return flat.view(operand.shape)


def gapped_rows(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Rows with a gap of one element after each: the first starts at a multiple of 16 bytes, most others do not."""
    *outer, size = operand.shape
    return _amid_nans(operand, (*outer, size + 1), (..., slice(0, size)))


def repeated(operand: torch.Tensor, position: int) -> torch.Tensor:
    """The first slice along the axis of the operand's own position, repeated with a stride of 0; dense if there is no
    such axis.
    """
    if position >= operand.ndim or operand.shape[position] == 0:
        return operand
    return operand.narrow(position, 0, 1).expand(operand.shape)


def transposed(operand: torch.Tensor, position: int) -> torch.Tensor:
    """The last two axes swapped in memory."""
    return operand.mT.contiguous().mT


def elements(shape: Shape, position: int) -> int:
    """Different elements of an operand of which none is repeated."""
    return math.prod(shape)


def elements_of_repeated(shape: Shape, position: int) -> int:
    """Different elements that `repeated` leaves of an operand of `shape`."""
    return math.prod(shape) // (max(shape[position], 1) if position < len(shape) else 1)


def _amid_nans(operand: torch.Tensor, around: Shape, within: tuple[object, ...]) -> torch.Tensor:
    view = operand.new_full(around, math.nan)[within]
    assert view.shape == operand.shape
    return view.copy_(operand)
