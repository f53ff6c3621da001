"""Variants of the truth for any operation: computed from the truth itself, or from the truth of other inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import torch

from suite.checking.survey import Piece
from suite.core.integers import cdiv
from suite.numerics.bounds import rounding_limit
from suite.numerics.formats import MAX_FINITE, MIN_EXPONENT
from suite.problem.shape import Shape
from suite.problem.variant import UNKNOWN, Variant

SHIFTS = (1, 2, 4, 8, 16, 32)
TILES = (8, 16, 32, 64, 128)
"""Tile widths to try for programs that compute several tiles."""
MAX_PROGRAMS = 8
ROW_MULTIPLES = (4, 8, 16, 32, 64, 128, 256)
"""Row pitches, in elements, that a kernel may wrongly round up to."""
REPEATED = (2, 4, 8, 16, 32)
"""Widths of vectors: the elements after the last whole vector may repeat the one before."""


def scaled(piece: Piece, dtype: str) -> Iterator[Variant]:
    """Yield the truth times a factor; plus a constant; without subnormals; by way of float16; and clamped."""
    value, limit, output = piece.value, piece.limit, piece.output.double()
    known = value.isfinite() & output.isfinite()
    if bool(known.any()):
        v, o = value[known], output[known]
        if (power := float(v.square().sum())) > 0:
            rough = float((o / torch.where(v == 0.0, math.nan, v)).nanmedian())
            for factor in dict.fromkeys((_snapped(rough), _snapped(float((v * o).sum()) / power))):
                if factor == -1.0:
                    yield Variant("the sign was the other one", -value, limit)
                elif math.isfinite(factor) and factor not in (0.0, 1.0):
                    yield Variant(
                        f"the result was multiplied by {factor:.6g}", value * factor, limit * abs(factor), fitted=True
                    )
        constant = float((o - v).median())
        if constant != 0.0:
            bound = limit + rounding_limit(value + constant, dtype).nan_to_num(0.0)
            yield Variant(f"{constant:.3g} was added to the result", value + constant, bound, fitted=True)
    smallest = 2.0 ** MIN_EXPONENT[dtype]
    flushed = torch.where(value.abs() < smallest, 0.0, value)
    yield Variant("subnormal results were flushed to 0", flushed, torch.where(flushed == value, limit, 0.0))
    if dtype == "bfloat16":
        low, high = ((value * (1.0 + step)).half().double() for step in (-(2.0**-8), 2.0**-8))
        coarser = value.abs() < 2.0 ** MIN_EXPONENT["float16"]  # elsewhere float16 has all digits of bfloat16
        either = torch.where(coarser, (high - low).abs(), 0.0)
        yield Variant("the result was converted to float16", value.half().double(), torch.maximum(limit, either))
    largest = MAX_FINITE[dtype]
    yield Variant("results were clamped to the largest number", value.clamp(-largest, largest), limit)


def _snapped(factor: float) -> float:
    """Round a factor, or its inverse, to a power of two or a small integer if it nearly is one."""
    if not math.isfinite(factor) or factor == 0.0:
        return factor
    whole = abs(factor) if abs(factor) >= 1 else 1 / abs(factor)
    power = 2.0 ** round(math.log2(whole))
    near = power if abs(whole / power - 1) < 1e-3 else round(whole) if abs(whole / round(whole) - 1) < 1e-3 else None
    if near is None:
        return factor
    return math.copysign(near if abs(factor) >= 1 else 1 / near, factor)


def repeated(whole: Piece, axes: Sequence[str]) -> Iterator[Variant]:
    """Yield the truth of one entry of an axis for all its entries, and rests of rows that repeat the element before.

    axes: the dimension of each axis.
    """
    value, limit = whole.value, whole.limit
    for axis, name in enumerate(axes):
        if value.shape[axis] > 1:
            first = (x.narrow(axis, 0, 1).expand(value.shape) for x in (value, limit))
            yield Variant(f"the result at {name} = 0 was given for every {name}", *first)
    for axis in range(max(0, value.ndim - 2), value.ndim):
        noun, size = _noun(axis, value.ndim), value.shape[axis]
        for kept in dict.fromkeys(size // width * width for width in REPEATED):
            if 0 < kept < size:
                index = torch.arange(size, device=value.device).clamp(max=kept - 1)
                which = f"last {size - kept} {noun}" if size - kept > 1 else f"last {noun[:-1]}"
                yield Variant(
                    f"the {which} of the result repeated the one before",
                    value.index_select(axis, index), limit.index_select(axis, index),
                )  # fmt: skip


def repeated_results(whole: Piece, shapes: Sequence[Shape], names: Sequence[str]) -> Iterator[Variant]:
    """Yield the truth of the first entry of the first axis for all entries, in all of several results.

    names: the dimension of the first axis of each result.
    """
    if len(set(names)) != 1 or len(names) != len(shapes) or any(shape[0] < 2 for shape in shapes):
        return
    value, limit = (
        torch.cat([part[: len(part) // shape[0]].repeat(shape[0]) for part, shape in _parts(x, shapes)])
        for x in (whole.value, whole.limit)
    )
    yield Variant(f"the results at {names[0]} = 0 were given for every {names[0]}", value, limit)


def _parts(x: torch.Tensor, shapes: Sequence[Shape]) -> Iterator[tuple[torch.Tensor, Shape]]:
    return zip(x.split([math.prod(shape) for shape in shapes]), shapes, strict=True)


def _noun(axis: int, ndim: int) -> str:
    return "elements" if ndim == 1 else "columns" if axis == ndim - 1 else "rows"


def moved(whole: Piece) -> Iterator[Variant]:
    """Yield the whole truth with its elements moved: shifted, transposed, or with another row pitch."""
    value, limit = whole.value, whole.limit
    for axis in range(max(0, value.ndim - 2), value.ndim):
        name = _noun(axis, value.ndim)
        for shift in (sign * size for size in SHIFTS if size < value.shape[axis] for sign in (1, -1)):
            edge = slice(0, shift) if shift > 0 else slice(value.shape[axis] + shift, None)
            at = [slice(None)] * value.ndim
            at[axis] = edge
            bound = limit.roll(shift, axis)
            bound[tuple(at)] = UNKNOWN
            noun = name if abs(shift) > 1 else name[:-1]
            yield Variant(f"the result was shifted by {shift} {noun}", value.roll(shift, axis), bound)
    if value.ndim > 1:
        yield _reordered("the result was written transposed", whole, value.mT, limit.mT)
    if value.ndim > 3:
        yield _reordered(
            "axes 1 and 2 of the result were exchanged", whole, value.transpose(1, 2), limit.transpose(1, 2)
        )
    if value.ndim == 2:
        yield from _rows_apart(whole)


def _reordered(mistake: str, whole: Piece, value: torch.Tensor, limit: torch.Tensor) -> Variant:
    """Return the elements in another order, reshaped to the result."""
    shape = whole.value.shape
    return Variant(mistake, value.reshape(shape), limit.reshape(shape))


def _rows_apart(whole: Piece) -> Iterator[Variant]:
    """Yield results whose rows were written with a larger pitch than their length."""
    m, n = whole.value.shape
    for apart in sorted({cdiv(n, multiple) * multiple for multiple in ROW_MULTIPLES} - {n}):
        value, limit = (torch.full((m * apart,), fill, dtype=torch.float64, device=whole.value.device)
                        for fill in (math.nan, 0.0))  # fmt: skip
        value.view(m, apart)[:, :n] = whole.value
        limit.view(m, apart)[:, :n] = whole.limit
        yield Variant(
            f"rows of the result were written {apart} apart", value[: m * n].view(m, n), limit[: m * n].view(m, n)
        )


def accumulated(whole: Piece) -> Iterator[Variant]:
    """Yield results whose tiles start from the accumulator of the program's previous tile."""
    if whole.value.ndim != 2 or not bool(whole.output.isfinite().all()):
        return
    m, n = whole.value.shape
    for tile in TILES:
        across = cdiv(n, tile)
        count = across * cdiv(m, tile)
        if count < 2:
            continue
        value = torch.zeros(cdiv(m, tile) * tile, across * tile, dtype=torch.float64, device=whole.value.device)
        value[:m, :n] = whole.output.double()
        tiles = value.view(-1, tile, across, tile).transpose(1, 2).reshape(count, tile, tile)
        limit = whole.limit * 2.0
        for programs in range(1, min(MAX_PROGRAMS, count - 1) + 1):
            before = torch.cat((torch.zeros_like(tiles[:programs]), tiles[:-programs]))
            before = before.view(-1, across, tile, tile).transpose(1, 2).reshape(value.shape)[:m, :n]
            yield Variant("a program began a tile with the sums of its previous tile", whole.value + before, limit)


def subsets(count: int) -> Iterator[Sequence[int]]:
    """Yield the sets of arguments that may be those of an earlier call: single ones, then several, but not all."""
    for size in range(1, count):
        yield from combinations(range(count), size)
