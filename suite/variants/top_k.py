"""Variants of top_k: another order, elements that are left out, wrong indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from suite.ops.top_k import numbers_at
from suite.problem.case import Case
from suite.problem.variant import UNKNOWN, Inputs, Part, Variant
from suite.variants._blocks import count_were, shortened_lengths
from suite.variants._rounding import coarser_formats, rounded

MAX_ELEMENTS = 2**20
"""Largest number of elements of x; every variant sorts them again."""
MOST_PAIRS = 2**24
"""Largest number of pairs of an element and a result that are compared."""
BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Sizes of blocks, and of the steps between the elements of a thread."""


@dataclass(frozen=True)
class Rows:
    """The operand in float64, with the right values of its rows."""

    x: torch.Tensor
    right: torch.Tensor
    part: Part

    def selected(self, mistake: str, keys: torch.Tensor) -> Variant:
        """Return the variant that selects by these keys. They may have more columns than x; x is 0 there."""
        order = keys.sort(dim=1, descending=True, stable=True).indices[:, : self.right.shape[1]]
        values = pad(self.x, (0, keys.shape[1] - self.x.shape[1])).gather(1, order)
        limit = torch.zeros_like(values).masked_fill_(order >= self.x.shape[1], UNKNOWN)
        return self._joined(mistake, values, values, limit)

    def placed(self, mistake: str, indices: torch.Tensor) -> Variant:
        """Return the variant with the right values and these indices."""
        named = numbers_at(indices, self.x, self.right.reshape(-1)).view(self.right.shape)
        return self._joined(mistake, self.right, named, torch.zeros_like(named))

    def given(self, mistake: str, values: torch.Tensor) -> Variant:
        """Return the variant with these values and indices."""
        return self._joined(mistake, values, values, torch.zeros_like(values))

    def _joined(self, mistake: str, values: torch.Tensor, named: torch.Tensor, limit: torch.Tensor) -> Variant:
        value = torch.cat([values.flatten(), named.flatten()])[self.part[0]]
        return Variant(mistake, value, torch.cat([torch.zeros_like(limit).flatten(), limit.flatten()])[self.part[0]])


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if inputs[0].numel() > MAX_ELEMENTS:
        return
    x = inputs[0].double()
    ordered = x.sort(dim=1, descending=True, stable=True)
    rows = Rows(x, ordered.values[:, : case["K"]], part)
    yield from _orders(rows)
    yield from _missing(rows, case)
    yield from _indices(rows, ordered.indices[:, : case["K"]])


def _orders(rows: Rows) -> Iterator[Variant]:
    x = rows.x
    yield rows.selected("the smallest numbers were selected", -x)
    yield rows.selected("the numbers with the largest absolute values were selected", x.abs())
    yield rows.given("the numbers were in ascending order", rows.right.flip(1))
    yield rows.selected("NaN counted as less than all numbers", x.nan_to_num(-torch.inf, torch.inf, -torch.inf))
    columns = x.sort(dim=0, descending=True).values
    if columns.shape[0] >= rows.right.shape[1]:
        yield rows.given("the columns were searched, not the rows", columns.T[: len(x), : rows.right.shape[1]])


def _missing(rows: Rows, case: Case) -> Iterator[Variant]:
    """Yield selections without some elements, or with elements beyond the row."""
    x, k = rows.x, case["K"]
    yield rows.selected("columns beyond the row counted as 0", pad(x, (0, k)))
    for kept in shortened_lengths(x.shape[1]):
        lost = count_were(x.shape[1] - kept, "column")
        yield rows.selected(f"the last {lost} missing", x.clone().index_fill_(1, _from(kept, x), -torch.inf))
    for size in BLOCKS:
        if size < x.shape[1]:
            blocks = pad(x, (0, -x.shape[1] % size), value=-torch.inf)
            neighbours = blocks.view(len(x), -1, size)
            apart = blocks.view(len(x), size, -1)
            for each, axis, which in ((neighbours, 2, f"each {size} neighbours"), (apart, 1, f"{size} parts of a row")):
                first = each == each.amax(dim=axis, keepdim=True)
                only = torch.where(first, each, -torch.inf).view(len(x), -1)[:, : x.shape[1]]
                yield rows.selected(f"only the largest of {which} counted", only)
    for kind in coarser_formats(case.dtype):
        yield rows.given(f"numbers were rounded to {kind}", rounded(rows.right, kind))
        yield rows.selected(f"numbers were compared after rounding to {kind}", rounded(x, kind))


def _indices(rows: Rows, right: torch.Tensor) -> Iterator[Variant]:
    n, k = rows.x.shape[1], right.shape[1]
    yield rows.placed("the indices were one too large", right + 1)
    yield rows.placed("the indices were one too small", right - 1)
    yield rows.placed("the indices were in ascending order", right.sort(dim=1).values)
    places = torch.arange(k, device=right.device)
    yield rows.placed("the indices were positions in the result", places.expand_as(right))
    yield rows.placed("all rows had the indices of the first", right[:1].expand_as(right))
    yield rows.placed("the indices counted from the beginning of x", right + n * _rows(right))
    yield rows.placed("the indices counted from the end of the row", n - 1 - right)
    if rows.x.numel() * k < MOST_PAIRS:
        first = (rows.x[:, None, :] == rows.right[:, :, None]).double().argmax(dim=2)
        yield rows.placed("the indices of equal numbers were the first one's", first)
    for size in BLOCKS:
        if size < n:
            yield rows.placed(f"the indices were within blocks of {size}", right % size)


def _from(kept: int, x: torch.Tensor) -> torch.Tensor:
    return torch.arange(kept, x.shape[1], device=x.device)


def _rows(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(x), device=x.device)[:, None]
