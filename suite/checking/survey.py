"""One pass over a wrong result: counts and locates the wrong elements, and selects the part to examine closely."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from suite.checking.error_map import ErrorMap, Tiles
from suite.checking.judge import error_ratios
from suite.checking.memory import INTEGERS
from suite.core.integers import index_at
from suite.numerics.formats import max_finite
from suite.problem.truth import Truth
from suite.problem.variant import Part

POISON = {torch.float32: 0x7FC00000, torch.float16: 0x7E00, torch.bfloat16: 0x7FC0, torch.float64: 0x7FF8 << 48}
POISON |= {kind: torch.iinfo(kind).max for kind in (torch.int16, torch.int32, torch.int64)}
"""Bits of the NaN or integer that fills allocated but unwritten memory. Arithmetic makes other NaN, except in 16 bits
on a CPU, where a conversion from float32 makes these."""
BESIDE = -1
"""Bits, as a signed integer, of the NaN in guard bands."""

FULL = 0.9
"""Smallest share of wrong elements in a box for the whole box to be called wrong."""


@dataclass(frozen=True)
class Survey:
    """The findings of a pass over a wrong result.

    total, wrong: numbers of elements. unwritten, beside, zero, lost_nan, saturated: numbers of wrong elements that hold
    the bits of unwritten memory, the bits of guard bands, 0, a number in place of NaN, the largest number in place of
    an infinity. begins, ends: the box of the wrong elements. part: the part to examine.
    """

    total: int
    wrong: int
    unwritten: int
    beside: int
    zero: int
    lost_nan: int
    saturated: int
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    map: ErrorMap
    part: Piece

    @property
    def is_box(self) -> bool:
        """True if nearly every element in the box of the wrong ones is wrong."""
        elements = math.prod(end - begin for begin, end in zip(self.begins, self.ends, strict=True))
        return self.wrong >= FULL * elements


@dataclass(frozen=True)
class Piece:
    """A part of the result with its truth and bound."""

    part: Part
    output: torch.Tensor
    """The numbers that the results give or stand for."""
    value: torch.Tensor
    limit: torch.Tensor


def survey(output: torch.Tensor, truths: Iterable[Truth], dtype: str, room: int, columns: int | None) -> Survey | None:
    """Survey a result; return None if nothing is wrong.

    room: largest number of elements of the examined part around the worst element. Smaller results are examined whole.
    columns: largest number of elements of the part along the last axis; None for no limit.
    """
    tiles: Tiles | None = None
    counts = dict.fromkeys(("wrong", "unwritten", "beside", "zero", "lost_nan", "saturated"), 0)
    begins, ends = list(output.shape), [0] * output.ndim
    worst, part = 1.0, None
    pieces: list[tuple[Part, Truth]] | None = [] if output.numel() <= room else None
    for truth in truths:
        index = tuple(slice(*each.indices(size)) for each, size in zip(truth.index, output.shape, strict=True))
        piece = output[index].to(truth.value.device)
        if not piece.numel():
            continue
        tiles = tiles or Tiles(tuple(output.shape), piece.device)
        if pieces is not None:
            pieces.append((index, truth))
        numbers = truth.numbers(piece)
        ratios = error_ratios(numbers, truth, dtype)
        wrong = ratios > 1.0
        found = int(wrong.sum())
        if found:
            tiles.add(wrong, index)
            for name, count in _kinds(piece, truth, wrong, dtype).items():
                counts[name] += count
            for axis, each in enumerate(index):
                others = [other for other in range(output.ndim) if other != axis]
                places = (wrong.sum(dim=others) if others else wrong).nonzero()
                begins[axis] = min(begins[axis], each.start + int(places[0]))
                ends[axis] = max(ends[axis], each.start + int(places[-1]) + 1)
            if part is None or float(ratios.max()) > worst:
                worst = float(ratios.max())
                part = _part_at(int(ratios.argmax()), numbers, truth, index, room, columns)
    if part is None or tiles is None:
        return None
    part = part if pieces is None else _whole_part(output, pieces)
    return Survey(output.numel(), **counts, begins=tuple(begins), ends=tuple(ends), map=tiles.map(), part=part)


def _whole_part(output: torch.Tensor, pieces: Sequence[tuple[Part, Truth]]) -> Piece:
    """Return the whole result as the part."""
    value, limit = (torch.empty(output.shape, dtype=torch.float64, device=pieces[0][1].value.device) for _ in range(2))
    numbers = output.to(value.device)
    if any(truth.named is not None for _, truth in pieces):
        numbers = numbers.clone()
    for index, truth in pieces:
        value[index], limit[index] = truth.value, truth.limit
        if truth.named is not None:
            numbers[index] = truth.named(numbers[index]).to(numbers.dtype)
    return Piece(tuple(slice(0, size) for size in output.shape), numbers, value, limit)


def _kinds(piece: torch.Tensor, truth: Truth, wrong: torch.Tensor, dtype: str) -> dict[str, int]:
    """Count the wrong elements of each kind."""
    bits = piece.contiguous().view(INTEGERS[piece.element_size()])
    largest_number = max_finite(truth.dtype or dtype)
    infinite = truth.value.abs() > largest_number
    largest = piece.double().abs() == largest_number
    kinds = {
        "wrong": wrong,
        "unwritten": wrong & (bits == POISON[piece.dtype]) if piece.dtype in POISON else wrong & False,
        "beside": wrong & (bits == BESIDE) if piece.is_floating_point() else wrong & False,
        "zero": wrong & (piece == 0),
        "lost_nan": wrong & truth.value.isnan(),
        "saturated": wrong & infinite & largest,
    }
    return {name: int(mask.sum()) for name, mask in kinds.items()}


def _part_at(place: int, piece: torch.Tensor, truth: Truth, index: Part, room: int, columns: int | None) -> Piece:
    """Return the part of a piece around the element with flat index `place`."""
    at = list(index_at(place, piece.shape))
    local = []
    for axis in reversed(range(piece.ndim)):
        size = piece.shape[axis]
        most = room if columns is None or axis < piece.ndim - 1 or piece.ndim == 1 else min(room, columns)
        length = max(1, min(size, most))
        start = max(0, min(at[axis] - length // 2, size - length))
        local.append(slice(start, start + length))
        room //= length
    inside = tuple(reversed(local))
    part = tuple(slice(i.start + p.start, i.start + p.stop) for i, p in zip(index, inside, strict=True))
    return Piece(part, piece[inside].clone(), truth.value[inside].clone(), truth.limit[inside].clone())
