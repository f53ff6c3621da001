"""Variants of softmax: another maximum, another sum, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from suite.ops.softmax import softmax_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, kept_without_the_rest, padded, spans, were
from suite.variants._rounding import coarser, rounded, sixteen

MOST_ELEMENTS = 2**20
"""Of larger inputs only the rows of the part are looked at."""
MOST_STEPS = 256
"""Blocks of a row that are gone through one after the other."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x = inputs[0][part[0]].double()
    count = math.prod(case.shape)

    def variant(mistake: str, value: torch.Tensor, of: torch.Tensor = x) -> Variant:
        return Variant(mistake, value[:, part[1]], softmax_limit(of, value, count, case.dtype)[:, part[1]])

    highest = x.amax(dim=1, keepdim=True)
    e = torch.exp(x - highest)
    total = e.sum(dim=1, keepdim=True)
    yield variant("2^x stood for e^x", torch.softmax(x * math.log(2.0), dim=1))
    yield variant("the sum was not divided by", e)
    single = torch.exp(x.float())
    plain = (single / single.sum(dim=1, keepdim=True)).double()
    yield variant("the maximum was not subtracted", plain)
    bare = x.nan_to_num(-math.inf, math.inf, -math.inf)
    yield variant("NaN was taken for minus infinity", torch.softmax(bare, dim=1))
    if inputs[0].numel() <= MOST_ELEMENTS:
        everything = inputs[0].double()
        single = torch.exp((x - everything.amax()).float())
        yield variant("the maximum of the whole was subtracted", (single / single.sum(dim=1, keepdim=True)).double())
        yield variant("the softmax was of columns", torch.softmax(everything, dim=0)[part[0]])
        columns = torch.exp((everything - everything.amax(dim=1, keepdim=True)).float()).double()
        yield variant("the sum was of columns", e / columns.sum(dim=0, keepdim=True))
    yield from _digits(x, e, total, case, part)
    yield from _rests(x, e, total, highest, case, part)
    for size in SIZES:
        if size < x.shape[1] <= size * MOST_STEPS:
            yield variant(f"the sum was not rescaled when the maximum grew, block by block of {size}", _kept(x, size))


def _digits(x: torch.Tensor, e: torch.Tensor, total: torch.Tensor, case: Case, part: Part) -> Iterator[Variant]:
    """Roundings on the way."""
    count = math.prod(case.shape)
    ways = {f"x was rounded to {kind}": torch.softmax(rounded(x, kind), dim=1) for kind in coarser(case.dtype)}
    for kind in sixteen(case.dtype):
        small = rounded(e, kind)
        ways[f"exponentials were rounded to {kind}"] = small / small.sum(dim=1, keepdim=True)
        ways[f"exponentials above the line were rounded to {kind}"] = small / total
        ways[f"the sum was rounded to {kind}"] = e / rounded(total, kind)
        ways[f"exponentials and their sum were rounded to {kind}"] = small / rounded(
            small.sum(dim=1, keepdim=True), kind
        )
        if kind != case.dtype:
            ways[f"the result was rounded to {kind}"] = rounded(e / total, kind)
    for mistake, value in ways.items():
        yield Variant(mistake, value[:, part[1]], softmax_limit(x, value, count, case.dtype)[:, part[1]])


def _rests(
    x: torch.Tensor, e: torch.Tensor, total: torch.Tensor, highest: torch.Tensor, case: Case, part: Part
) -> Iterator[Variant]:
    """Sums of too few or too many columns."""
    count, n = math.prod(case.shape), x.shape[1]
    ways = {}
    for kept in kept_without_the_rest(n):
        left = were(n - kept, "column")
        for which, there in (("last", slice(0, kept)), ("first", slice(n - kept, n))):
            largest = x[:, there].amax(dim=1, keepdim=True)
            of_part = torch.exp(x[:, there] - largest).sum(dim=1, keepdim=True)
            ways[f"the {which} {left} missing in the sum"] = torch.exp(x - largest) / of_part
    for more in padded(n):
        beyond = more * torch.exp(-highest.clamp(min=0.0))
        of_row = total * torch.exp(highest - highest.clamp(min=0.0))
        ways[f"{were(more, 'column')} counted beyond the row, of 0"] = torch.exp(x - highest.clamp(min=0.0)) / (
            beyond + of_row
        )
    for mistake, value in ways.items():
        yield Variant(mistake, value[:, part[1]], softmax_limit(x, value, count, case.dtype)[:, part[1]])


def _kept(x: torch.Tensor, size: int) -> torch.Tensor:
    """The sum so far keeps its scale when the maximum grows."""
    largest, total = torch.full_like(x[:, :1], -math.inf), torch.zeros_like(x[:, :1])
    for span in spans(x.shape[1], size):
        largest = torch.maximum(largest, x[:, span].amax(dim=1, keepdim=True))
        total = total + torch.exp(x[:, span] - largest).sum(dim=1, keepdim=True)
    return torch.exp(x - largest) / total
