"""Variants of linear_cross_entropy: those of cross_entropy that change the gradients of logits, and of the products."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite import ops
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import count_were, shortened_lengths
from suite.variants._rounding import rounded, sixteen_bit_formats
from suite.variants.cross_entropy import Rows, bound_of

MAX_ELEMENTS = 2**20
"""Largest number of logits and of elements of an operand; every variant computes all results again."""

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    op = ops.get(case.operation)
    x, weight, target = inputs
    sizes = (x.numel(), weight.numel(), len(x) * len(weight))
    if max(sizes) > MAX_ELEMENTS or not min(sizes):
        return
    pieces = sorted(op.truth(inputs, case), key=lambda each: each.index[0].start)
    right, limit = (torch.cat([getattr(each, name) for each in pieces])[part[0]] for name in ("value", "limit"))
    rows = Rows(x.double() @ weight.double().T, target, op.arguments(case)["ignore_index"], 0.0)
    for mistake, results in _mistakes(x.double(), weight.double(), rows, case.dtype):
        value = torch.cat([each.flatten() for each in results])[part[0]]
        yield Variant(mistake, value, bound_of(value, right, limit, case.dtype))


def _mistakes(x: torch.Tensor, weight: torch.Tensor, rows: Rows, dtype: str) -> Iterator[tuple[str, Results]]:
    loss, dz = rows.results()
    dx, dweight = dz @ weight, dz.T @ x
    count = max(float(rows.counted.sum()), 1.0)

    def of(gradient: torch.Tensor) -> Results:
        return loss, gradient @ weight, gradient.T @ x

    yield "the gradients were those of the sum of the losses", of(dz * count)
    yield "the gradients were those of the mean over all rows", of(dz * (count / len(loss)))
    yield "dx was that of the sum of the losses", (loss, dx * count, dweight)
    yield "dweight was that of the sum of the losses", (loss, dx, dweight * count)
    yield "the target was not subtracted from the softmax", of(rows.results(expected=rows.expected(target=0.0))[1])
    yield "ignored rows had gradients", of(dz.where(rows.counted[:, None], rows.log_p.exp() / count))
    yield "the losses were divided by the number of counted rows", (loss / count, dx, dweight)
    single = torch.exp(rows.z.float()).sum(1, keepdim=True).log()
    yield "the maximum was not subtracted", _results(x, weight, rows.results(log_p=rows.z - single.double()))
    yield from _blocks(x, weight, rows)
    for kind in sixteen_bit_formats(dtype):
        if kind != dtype:
            few = Rows(rounded(rows.z, kind), rows.target, rows.ignored, 0.0).results()
            yield f"the logits were rounded to {kind}", (few[0], few[1] @ weight, few[1].T @ x)
            yield f"the gradients of logits were rounded to {kind}", of(rounded(dz, kind))
        small = rounded(rows.log_p, kind)
        yield f"logarithms of probabilities were rounded to {kind}", _results(x, weight, rows.results(log_p=small))


def _results(x: torch.Tensor, weight: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor]) -> Results:
    loss, dz = found
    return loss, dz @ weight, dz.T @ x


def _blocks(x: torch.Tensor, weight: torch.Tensor, rows: Rows) -> Iterator[tuple[str, Results]]:
    """Columns missing in the sum of exponentials or in dx, rows missing in dweight."""
    loss, dz = rows.results()
    for kept in shortened_lengths(len(weight)):
        left = count_were(len(weight) - kept, "column")
        log_p = rows.z - torch.logsumexp(rows.z[:, :kept], dim=1, keepdim=True)
        yield f"the last {left} missing in the sum of exponentials", _results(x, weight, rows.results(log_p=log_p))
        yield f"the last {left} missing in dx", (loss, dz[:, :kept] @ weight[:kept], dz.T @ x)
        only = (loss, dz[:, kept:] @ weight[kept:], dz.T @ x)
        yield f"dx was that of the last {len(weight) - kept} columns alone", only
    for kept in shortened_lengths(len(x)):
        left = count_were(len(x) - kept, "row")
        yield f"the last {left} missing in dweight", (loss, dz @ weight, dz[:kept].T @ x[:kept])
