"""Variants of cross_entropy: another mean, target or smoothing, missing columns, intermediate roundings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from suite import ops
from suite.numerics.formats import unit_roundoff
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import count_were, shortened_lengths
from suite.variants._rounding import rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of logits; every variant computes both results again."""

Results = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Rows:
    """Logits and a target for each row, float64."""

    z: torch.Tensor
    target: torch.Tensor
    ignored: int
    smoothing: float

    @property
    def counted(self) -> torch.Tensor:
        return self.target != self.ignored

    @property
    def log_p(self) -> torch.Tensor:
        return torch.log_softmax(self.z, dim=1)

    def expected(self, step: int = 0, *, target: float | None = None, others: float | None = None) -> torch.Tensor:
        """Return the smoothed distribution of the targets, `step` columns on, with other shares if they are given."""
        columns = self.z.shape[1]
        shares = torch.full_like(self.z, self.smoothing / columns if others is None else others)
        at = (self.target.where(self.counted, 0) + step).remainder(columns)[:, None]
        of_target = 1.0 - self.smoothing if target is None else target
        return shares.scatter_add(1, at, torch.full_like(at, of_target, dtype=self.z.dtype))

    def results(
        self, log_p: torch.Tensor | None = None, expected: torch.Tensor | None = None, mean_of: float | None = None
    ) -> Results:
        """Return the losses and the gradients of their mean, given other parts of the formula."""
        log_p = self.log_p if log_p is None else log_p
        expected = self.expected() if expected is None else expected
        mean_of = max(float(self.counted.sum()), 1.0) if mean_of is None else mean_of
        loss = -(expected * log_p).nan_to_num(0.0, neginf=-torch.inf).sum(dim=1)
        gradient = (log_p.exp() - expected) / mean_of
        return loss.masked_fill(~self.counted, 0.0), gradient.masked_fill(~self.counted[:, None], 0.0)


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    op = ops.get(case.operation)
    if inputs[0].numel() > MAX_ELEMENTS or not inputs[0].numel():
        return
    arguments = op.arguments(case)
    rows = Rows(inputs[0].double(), inputs[1], arguments["ignore_index"], arguments["label_smoothing"])
    pieces = sorted(op.truth(inputs, case), key=lambda each: each.index[0].start)
    right, limit = (torch.cat([getattr(each, name) for each in pieces])[part[0]] for name in ("value", "limit"))
    for mistake, results in _mistakes(rows, case.dtype):
        value = torch.cat([each.flatten() for each in results])[part[0]]
        yield Variant(mistake, value, bound_of(value, right, limit, case.dtype))


def bound_of(value: torch.Tensor, right: torch.Tensor, limit: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the bound of a mistaken result: that of the right one, in proportion; some roundings where that is 0."""
    larger = (value / right).abs().nan_to_num(1.0, posinf=1.0).clamp(min=1.0)
    return torch.where(right == 0.0, limit + value.abs() * (4.0 * unit_roundoff(dtype)), limit * larger)


def _mistakes(rows: Rows, dtype: str) -> Iterator[tuple[str, Results]]:
    loss, gradient = rows.results()
    count = max(float(rows.counted.sum()), 1.0)
    yield "the gradient was that of the sum of the losses", (loss, gradient * count)
    yield "the gradient was that of the mean over all rows", (loss, gradient * (count / len(loss)))
    yield "the gradient had the opposite sign", (loss, -gradient)
    yield "the target was not subtracted from the softmax", (loss, rows.results(expected=rows.expected(target=0.0))[1])
    yield "the losses were divided by the number of counted rows", (loss / count, gradient)
    yield "the losses had the opposite sign", (-loss, gradient)
    p = rows.log_p.exp()
    kept = gradient.where(rows.counted[:, None], p / count)
    yield "ignored rows had the gradient of other rows without a target", (loss, kept)
    for step, side in ((1, "next"), (-1, "previous")):
        yield f"the target was the {side} column", rows.results(expected=rows.expected(step))
    if rows.smoothing:
        yield "label_smoothing was left out", rows.results(expected=rows.expected(target=1.0, others=0.0))
        yield "the target's share was not reduced by label_smoothing", rows.results(expected=rows.expected(target=1.0))
        unsmoothed = rows.results(expected=rows.expected(target=1.0, others=0.0))
        yield "label_smoothing was left out of the gradient", (loss, unsmoothed[1])
        yield "label_smoothing was left out of the losses", (unsmoothed[0], gradient)
    yield from _columns(rows)
    yield from _digits(rows, dtype)


def _columns(rows: Rows) -> Iterator[tuple[str, Results]]:
    """Sums of too few columns, and a maximum that is not subtracted."""
    single = torch.exp(rows.z.float()).sum(1, keepdim=True).log()
    yield "the maximum was not subtracted", rows.results(log_p=rows.z - single.double())
    for kept in shortened_lengths(rows.z.shape[1]):
        left = count_were(rows.z.shape[1] - kept, "column")
        log_p = rows.z - torch.logsumexp(rows.z[:, :kept], dim=1, keepdim=True)
        yield f"the last {left} missing in the sum", rows.results(log_p=log_p)


def _digits(rows: Rows, dtype: str) -> Iterator[tuple[str, Results]]:
    """Intermediate roundings."""
    loss, gradient = rows.results()
    for kind in sixteen_bit_formats(dtype):
        few = rounded(rows.log_p, kind)
        yield f"logarithms of probabilities were rounded to {kind}", rows.results(log_p=few)
        yield f"the losses were rounded to {kind}", (rounded(loss, kind), gradient)
        if kind != dtype:
            yield f"the gradient was rounded to {kind}", (loss, rounded(gradient, kind))
            yield f"the logits were rounded to {kind}", rows.results(log_p=torch.log_softmax(rounded(rows.z, kind), 1))
