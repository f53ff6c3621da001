"""Places an operand in memory: with gaps, misaligned, repeated, transposed.

Each function takes an operand and its position in the signature, and returns a tensor of the same shape. The memory
between and beside its elements is NaN, so that reads outside the operand show in the result; for integers it is the
largest one.
"""

from __future__ import annotations

import math

import torch

from suite.problem.shape import Shape

FAR = 2**17
"""Least offset of the last element of an operand that is `stepped`."""


def as_drawn(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Keep an operand dense and row-major."""
    return operand


def strided(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Spread an operand over a larger array, in a way that depends on its position.

    A vector takes every second, third ... element. A matrix has rows with a gap after each, or takes every second row
    and third column, or every second row.
    """
    if operand.ndim == 1:
        steps, gap = [position + 2], 0
    else:
        kind = position % 3
        steps, gap = [*[1] * (operand.ndim - 2), *((1, 1), (2, 3), (2, 1))[kind]], 5 if kind == 0 else 0
    spans = [size * step for size, step in zip(operand.shape, steps, strict=True)]
    within = tuple(slice(0, span, step) for span, step in zip(spans, steps, strict=True))
    return _surrounded_by_nan(operand, (*spans[:-1], spans[-1] + gap), within)


def stepped(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Take every third element of the last axis, and place the slices of the first axis so far apart that an offset has
    more than 17 bits."""
    if not operand.ndim:
        return operand
    steps, inner = [1] * operand.ndim, 3 * math.prod(operand.shape)
    steps[-1] = 3
    far = next((axis for axis, size in enumerate(operand.shape) if size > 1), None)
    if far is not None and inner:
        stride = inner // math.prod(operand.shape[: far + 1]) // (3 if far == operand.ndim - 1 else 1)
        steps[far] = max(steps[far], 2, math.ceil(FAR / ((operand.shape[far] - 1) * stride)))
    spans = tuple(size * step for size, step in zip(operand.shape, steps, strict=True))
    within = tuple(slice(0, span, step) for span, step in zip(spans, steps, strict=True))
    return _surrounded_by_nan(operand, spans, within)


def misaligned(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Place an operand contiguously, one element after a multiple of 16 bytes."""
    count = operand.numel()
    flat = _surrounded_by_nan(operand.reshape(-1), (count + 2,), (slice(1, count + 1),))
    return flat.view(operand.shape)


def gapped_rows(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Place rows with a gap of one element after each: the first is aligned to 16 bytes, most others are not."""
    *outer, size = operand.shape
    return _surrounded_by_nan(operand, (*outer, size + 1), (..., slice(0, size)))


def halved_rows(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Place rows as the first halves of rows twice as long: all are aligned to 16 bytes if the first two are."""
    *outer, size = operand.shape
    return _surrounded_by_nan(operand, (*outer, 2 * size), (..., slice(0, size)))


def one_element(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Repeat the first element along all axes with strides of 0, as the gradient of a sum is. The rest is NaN."""
    if not operand.numel():
        return operand
    first = (slice(0, 1),) * operand.ndim
    return _surrounded_by_nan(operand[first], operand.shape, first).expand(operand.shape)


def repeated(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Repeat the first slice along the axis of the operand's position with a stride of 0; dense if there is no such
    axis. The memory of the other slices is NaN."""
    if position >= operand.ndim or operand.shape[position] == 0:
        return operand
    first = tuple(slice(0, 1) if axis == position else slice(None) for axis in range(operand.ndim))
    return _surrounded_by_nan(operand[first], operand.shape, first).expand(operand.shape)


def transposed(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Swap the last two axes in memory."""
    return operand.mT.contiguous().mT


def elements(shape: Shape, position: int) -> int:
    """Count the stored elements of an operand without repetitions."""
    return math.prod(shape)


def elements_of_repeated(shape: Shape, position: int) -> int:
    """Count the stored elements of an operand of `shape` that `repeated` has placed."""
    return math.prod(shape) // (max(shape[position], 1) if position < len(shape) else 1)


def _surrounded_by_nan(operand: torch.Tensor, around: Shape, within: tuple[object, ...]) -> torch.Tensor:
    beside = math.nan if operand.is_floating_point() else torch.iinfo(operand.dtype).max
    view = operand.new_full(around, beside)[within]
    assert view.shape == operand.shape
    return view.copy_(operand)
