"""Operands as a kernel reads them with wrong strides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from suite.problem.variant import Part


def read_with_strides(x: torch.Tensor, strides: Sequence[int], part: Part, shift: int = 0) -> torch.Tensor:
    """Return a part of an operand read with other strides, float64; NaN outside its memory, as in its guard bands.

    shift: distance of the first element read from the operand's first, in elements.
    """
    at = torch.tensor(shift, device=x.device)
    for axis, (piece, stride) in enumerate(zip(part, strides, strict=True)):
        steps = torch.arange(piece.start, piece.stop, device=x.device) * stride
        at = at + steps.view(-1, *[1] * (len(part) - 1 - axis))
    return read_at(x, at)


def read_at(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return the numbers at offsets from an operand's first element, float64; NaN outside its memory."""
    flat = torch.empty(0, dtype=x.dtype, device=x.device)
    flat.set_(x.untyped_storage())  # type: ignore[call-overload]
    at = offsets + x.storage_offset()
    inside = (at >= 0) & (at < len(flat))
    return flat[at.clamp(0, len(flat) - 1)].double().masked_fill_(~inside, math.nan)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a C array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
