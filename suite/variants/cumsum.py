"""Variants of cumsum: other sums of a row, blocks that are not joined, intermediate roundings."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite.numerics.repeats import repeats
from suite.ops.cumsum import prefix_limit, prefix_variance
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES
from suite.variants._rounding import rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of elements of x; every variant adds all of them again."""
SHORTEST_BLOCK = 8


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x = inputs[0].double()
    if x.numel() > MAX_ELEMENTS:
        return
    right, squares = x.cumsum(dim=1), x.square().cumsum(dim=1)
    variance = prefix_variance(right, squares, repeats(x))
    for mistake, value in _mistakes(x, right, case.dtype):
        limit = prefix_limit(value, squares, variance, x.numel(), case.dtype)
        yield Variant(mistake, value[part], limit[part])


def _mistakes(x: torch.Tensor, right: torch.Tensor, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
    n = x.shape[1]
    yield "the sum before a number was a difference, which is NaN for an infinity", (right - x) + x
    yield "each sum was without its own number", right - x
    yield "the sums began at the end of the row", x.flip(1).cumsum(dim=1).flip(1)
    yield "each sum was that of the whole row", right[:, -1:].expand(right.shape)
    yield "the columns were added, not the rows", x.cumsum(dim=0)
    yield "a row began with the sum of the row before", right + torch.nn.functional.pad(right[:-1, -1:], (0, 0, 1, 0))
    yield (
        "all rows were summed as one row",
        right + torch.nn.functional.pad(right[:-1, -1:].cumsum(dim=0), (0, 0, 1, 0)),
    )
    yield "magnitudes were added", x.abs().cumsum(dim=1)
    yield "nothing was added", x
    for size in (each for each in SIZES if SHORTEST_BLOCK <= each < n):
        within, before = _parts(x, size)
        yield f"each block of {size} began at 0", within
        late = torch.nn.functional.pad(before[:, : -size or n], (size, 0))[:, :n]
        yield f"the sum before a block of {size} lacked the block just before", within + late
        last = torch.nn.functional.pad(before[:, size:], (0, size), value=0.0)
        only = within + torch.nn.functional.pad(last - before, (size, 0))[:, :n]
        yield f"a block of {size} began with the sum of one block before", only
    for kind in sixteen_bit_formats(dtype):
        yield f"sums were rounded to {kind} after each number", _running(x, kind)
        if kind != dtype:
            yield f"x was rounded to {kind}", rounded(x, kind).cumsum(dim=1)


def _parts(x: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums within blocks of a row, and the sum of all blocks before, at each element."""
    m, n = x.shape
    padded = torch.nn.functional.pad(x, (0, -n % size)).view(m, -1, size)
    within, totals = padded.cumsum(dim=2), padded.sum(dim=2, keepdim=True)
    before = (totals.cumsum(dim=1) - totals).expand(within.shape)
    return within.reshape(m, -1)[:, :n], before.reshape(m, -1)[:, :n]


def _running(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Return sums that are rounded after each addition."""
    columns, total = [], torch.zeros_like(x[:, 0])
    for column in x.unbind(dim=1):
        total = rounded(total + column, kind)
        columns.append(total)
    return torch.stack(columns, dim=1)
