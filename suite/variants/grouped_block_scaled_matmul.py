"""Variants of grouped_block_scaled_matmul: those of block_scaled_matmul, and other experts and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from suite.ops.block_scaled_matmul import GROUP
from suite.ops.matmul import grain
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import shortened_lengths
from suite.variants._rounding import rounded
from suite.variants.block_scaled_matmul import COARSE, MAX_PRODUCTS, Factors, Mistake, mistakes
from suite.variants.grouped_matmul import missing_rows, other_experts, rows_within

Result = tuple[torch.Tensor, torch.Tensor]
"""Values and their bounds."""


@dataclass(frozen=True)
class Choice:
    """For each row of the result: the experts of its weights and of their scales, the rows of x and of its scales, and
    whether it is computed at all."""

    expert: torch.Tensor
    of_scales: torch.Tensor
    row: torch.Tensor
    scale_row: torch.Tensor
    kept: torch.Tensor


@dataclass(frozen=True)
class Given:
    """The inputs of some columns of the result, with scales in float64. step and count: see `scaled_product`."""

    x: torch.Tensor
    scale_x: torch.Tensor
    weight: torch.Tensor
    scale_weight: torch.Tensor
    columns: torch.Tensor
    step: float
    count: int

    def result(self, chosen: Choice, rows: slice, compute: Callable[[Factors], Result]) -> Result:
        """Return some rows of the result, and their bounds. Rows that are left out are 0."""
        experts = torch.stack((chosen.expert, chosen.of_scales))[:, rows]
        value, bound = (
            torch.zeros(experts.shape[1], len(self.columns), dtype=torch.float64, device=self.x.device) for _ in "vb"
        )
        for expert, of_scales in experts.unique(dim=1).T.tolist():
            at = (experts[0] == expert) & (experts[1] == of_scales)
            blocks = self.scale_weight[of_scales]
            factors = Factors(
                self.x[chosen.row[rows][at]].double(), self.scale_x[chosen.scale_row[rows][at]],
                self.weight[expert].double(), blocks[self.columns // GROUP], blocks, self.columns,
            )  # fmt: skip
            value[at], bound[at] = compute(factors)
        left_out = ~chosen.kept[rows, None]
        return value.masked_fill(left_out, 0.0), bound.masked_fill(left_out, 0.0)

    def exact(self, factors: Factors) -> Result:
        return factors.value(self.step, self.count)

    def after(self, change: Mistake) -> Callable[[Factors], Result]:
        return lambda factors: self.exact(change(factors))


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x, scale_x, weight, scale_weight, sizes = inputs
    rows, columns = part
    expert = torch.arange(len(sizes), device=x.device).repeat_interleave(sizes.long())
    products = (rows.stop - rows.start) * (columns.stop - columns.start) * x.shape[1]
    if len(expert) != len(x) or not 0 < products <= MAX_PRODUCTS:
        return
    given = Given(
        x, scale_x.double(), weight[:, columns], scale_weight.double(),
        torch.arange(columns.start, columns.stop, device=x.device), grain(x) * grain(weight), case["T"] * case["N"],
    )  # fmt: skip
    row = torch.arange(len(x), device=x.device)
    right = Choice(expert, expert, row, row, torch.ones_like(row, dtype=torch.bool))
    for mistake, chosen in _other_choices(right, sizes.long()):
        yield Variant(mistake, *given.result(chosen, rows, given.exact))
    for mistake, change in mistakes(x.shape[1], "x", "weight").items():
        yield Variant(mistake, *given.result(right, rows, given.after(change)))
    e5m2 = replace(given, x=x.view(torch.float8_e5m2), weight=given.weight.view(torch.float8_e5m2), step=0.0)
    yield Variant("e4m3 was read as e5m2", *e5m2.result(right, rows, e5m2.exact))
    yield from _fewer_digits_and_terms(given, right, rows)


def _other_choices(right: Choice, sizes: torch.Tensor) -> Iterator[tuple[str, Choice]]:
    """Yield the mistakes by name. A diagnosis puts `as if` before the name."""
    count, after = len(sizes), (right.row + 1).clamp(max=len(right.row) - 1)
    for mistake, expert in other_experts(right.expert, right.row, sizes):
        yield mistake, replace(right, expert=expert, of_scales=expert)
    yield "the scales of weight were those of the next expert", replace(right, of_scales=(right.expert + 1) % count)
    yield "the scales of weight were those of the first expert", replace(right, of_scales=right.expert * 0)
    yield "each row of x was the one after it", replace(right, row=after, scale_row=after)
    yield "a row of x had the scales of the next one", replace(right, scale_row=after)
    within = rows_within(right.expert, right.row, sizes)
    yield "the scales of x were counted from the first row of each expert", replace(right, scale_row=within)
    for mistake, kept in missing_rows(right.expert, right.row, sizes):
        yield mistake, replace(right, kept=kept)


def _fewer_digits_and_terms(given: Given, right: Choice, rows: slice) -> Iterator[Variant]:
    value, bound = given.result(right, rows, given.exact)
    for mistake, coarse in COARSE.items():
        found, _ = given.result(right, rows, partial(_without_bound, coarse))
        yield Variant(mistake, found, bound)
    yield Variant("the result was rounded to float16", rounded(value, "float16"), bound)
    k = given.x.shape[1]
    for kept in shortened_lengths(k):
        left = f"the last {k - kept} of K were left out" if k - kept > 1 else "the last of K was left out"
        shorter = partial(_shortened, kept=kept)
        yield Variant(left, *given.result(right, rows, given.after(shorter)))


def _shortened(factors: Factors, kept: int) -> Factors:
    return replace(factors, a=factors.a[:, :kept], b=factors.b[:, :kept])


def _without_bound(compute: Callable[[Factors], torch.Tensor], factors: Factors) -> Result:
    return compute(factors), torch.zeros(())
