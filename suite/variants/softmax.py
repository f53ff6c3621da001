"""Variants of softmax: another maximum, another sum, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from suite.ops.softmax import softmax_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, count_were, padding_lengths, shortened_lengths, spans
from suite.variants._minus_infinity import MINUS_INFINITY
from suite.variants._rounding import coarser_formats, rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of elements of an input; larger ones have only variants that need no other rows than the part's."""
MAX_STEPS = 256
"""Largest number of blocks of a row in a simulated loop."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x = inputs[0][part[0]].double()
    count = math.prod(case.shape)

    def variant(mistake: str, value: torch.Tensor, source: torch.Tensor = x) -> Variant:
        return Variant(mistake, value[:, part[1]], softmax_limit(source, value, count, case.dtype)[:, part[1]])

    highest = x.amax(dim=1, keepdim=True)
    e = torch.exp(x - highest)
    total = e.sum(dim=1, keepdim=True)
    yield variant("2^x was used instead of e^x", torch.softmax(x * math.log(2.0), dim=1))
    yield variant("it was not divided by the sum", e)
    single = torch.exp(x.float())
    plain = (single / single.sum(dim=1, keepdim=True)).double()
    yield variant("the maximum was not subtracted", plain)
    yield from (variant(mistake, value) for mistake, value in _maxima(x, e / total, highest))
    bare = x.nan_to_num(-math.inf, math.inf, -math.inf)
    yield variant("NaN was taken for minus infinity", torch.softmax(bare, dim=1))
    if inputs[0].numel() <= MAX_ELEMENTS:
        everything = inputs[0].double()
        single = torch.exp((x - everything.amax()).float())
        yield variant("the maximum of the whole was subtracted", (single / single.sum(dim=1, keepdim=True)).double())
        yield variant("the softmax was of columns", torch.softmax(everything, dim=0)[part[0]])
        columns = torch.exp((everything - everything.amax(dim=1, keepdim=True)).float()).double()
        yield variant("the sum was of columns", e / columns.sum(dim=0, keepdim=True))
    yield from _digits(x, e, total, case, part)
    yield from _column_counts(x, e, total, highest, case, part)
    for size in SIZES:
        if size < x.shape[1] <= size * MAX_STEPS:
            yield variant(
                f"the sum was not rescaled when the maximum grew, block by block of {size}", _unrescaled(x, size)
            )


def _maxima(x: torch.Tensor, right: torch.Tensor, highest: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A running maximum that begins at 0, or at minus infinity without a guard."""
    single = torch.exp((x - highest.clamp(min=0.0)).float())
    total = single.sum(dim=1, keepdim=True)
    began = "the maximum began at 0"
    yield began, (single / total).double()
    yield f"{began} and a sum of 0 gave zeros", torch.where(total > 0.0, single / total, 0.0).double()
    seen = set()
    for size in SIZES:
        hidden = (x[:, :size] == -math.inf).all(dim=1, keepdim=True)
        rows = tuple(hidden.flatten().tolist())
        if bool(hidden.any()) and rows not in seen and size < x.shape[1]:
            seen.add(rows)
            yield MINUS_INFINITY.format("row"), right.masked_fill(hidden, math.nan)


def _digits(x: torch.Tensor, e: torch.Tensor, total: torch.Tensor, case: Case, part: Part) -> Iterator[Variant]:
    """Intermediate roundings."""
    count = math.prod(case.shape)
    values = {
        f"x was rounded to {kind}": torch.softmax(rounded(x, kind), dim=1) for kind in coarser_formats(case.dtype)
    }
    for kind in sixteen_bit_formats(case.dtype):
        small = rounded(e, kind)
        values[f"exponentials were rounded to {kind}"] = small / small.sum(dim=1, keepdim=True)
        values[f"exponentials in the numerator were rounded to {kind}"] = small / total
        values[f"the sum was rounded to {kind}"] = e / rounded(total, kind)
        values[f"exponentials and their sum were rounded to {kind}"] = small / rounded(
            small.sum(dim=1, keepdim=True), kind
        )
        if kind != case.dtype:
            values[f"the result was rounded to {kind}"] = rounded(e / total, kind)
    for mistake, value in values.items():
        yield Variant(mistake, value[:, part[1]], softmax_limit(x, value, count, case.dtype)[:, part[1]])


def _column_counts(
    x: torch.Tensor, e: torch.Tensor, total: torch.Tensor, highest: torch.Tensor, case: Case, part: Part
) -> Iterator[Variant]:
    """Sums of too few or too many columns."""
    count, n = math.prod(case.shape), x.shape[1]
    values = {}
    for kept in shortened_lengths(n):
        left = count_were(n - kept, "column")
        for which, there in (("last", slice(0, kept)), ("first", slice(n - kept, n))):
            largest = x[:, there].amax(dim=1, keepdim=True)
            part_sum = torch.exp(x[:, there] - largest).sum(dim=1, keepdim=True)
            values[f"the {which} {left} missing in the sum"] = torch.exp(x - largest) / part_sum
    for more in padding_lengths(n):
        beyond = more * torch.exp(-highest.clamp(min=0.0))
        row_sum = total * torch.exp(highest - highest.clamp(min=0.0))
        values[f"{count_were(more, 'column')} counted beyond the row, of 0"] = torch.exp(x - highest.clamp(min=0.0)) / (
            beyond + row_sum
        )
    for mistake, value in values.items():
        yield Variant(mistake, value[:, part[1]], softmax_limit(x, value, count, case.dtype)[:, part[1]])


def _unrescaled(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return the softmax of a running sum that is not rescaled when the maximum grows."""
    largest, total = torch.full_like(x[:, :1], -math.inf), torch.zeros_like(x[:, :1])
    for span in spans(x.shape[1], size):
        largest = torch.maximum(largest, x[:, span].amax(dim=1, keepdim=True))
        total = total + torch.exp(x[:, span] - largest).sum(dim=1, keepdim=True)
    return torch.exp(x - largest) / total
