"""Variants of layer_norm: another mean or variance, another order, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from suite import ops
from suite.ops.layer_norm import layer_norm_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, count_were, padding_lengths, shortened_lengths, spans
from suite.variants._eps import EPS_VALUES
from suite.variants._rounding import rounded, sixteen_bit_formats

PADDED = 4096
"""Largest power of two to which the columns of a row may be padded."""
MAX_ELEMENTS = 2**20
"""Largest number of elements of an input; larger ones have only variants that need no other rows than the part's."""


@dataclass(frozen=True)
class Formula:
    """The terms of y = centered * scale * weight + bias. centered: (rows, N); scale: (rows, 1) or (rows, N); eps is
    part of the scale."""

    centered: torch.Tensor
    scale: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    @property
    def value(self) -> torch.Tensor:
        return self.centered * self.scale * self.weight + self.bias


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x, eps = inputs[0][part[0]].double(), float(ops.get("layer_norm").arguments(case)["eps"])
    weight, bias = (each.double() for each in inputs[1:])
    mean = x.mean(dim=1, keepdim=True)
    centered = x - mean
    variance = centered.square().mean(dim=1, keepdim=True)
    right = Formula(centered, torch.rsqrt(variance + eps), weight, bias, eps)

    def variant(mistake: str, formula: Formula, value: torch.Tensor | None = None) -> Variant:
        value = formula.value if value is None else value
        limit = layer_norm_limit(x, formula.centered, formula.scale, weight, value, math.prod(case.shape), case.dtype)
        return Variant(mistake, value[:, part[1]], limit[:, part[1]])

    for formulas in (_orders(x, right), _variances(x, right, mean, variance), _means(x, right)):
        for mistake, formula in formulas:
            yield variant(mistake, formula)
    if inputs[0].numel() <= MAX_ELEMENTS:
        for mistake, formula in _other_statistics(inputs[0].double(), right, part):
            yield variant(mistake, formula)
    for kind in sixteen_bit_formats(case.dtype):
        y = right.centered * right.scale
        yield variant(f"(x - mean) * scale was rounded to {kind}", right, rounded(y, kind) * weight + bias)
        yield variant(f"(x - mean) * scale * weight was rounded to {kind}", right, rounded(y * weight, kind) + bias)
        around = x - rounded(mean, kind)
        moved = torch.rsqrt(around.square().mean(dim=1, keepdim=True) + eps)
        yield variant(f"the mean was rounded to {kind}", replace(right, centered=around, scale=moved))
        yield variant(f"the scale was rounded to {kind}", replace(right, scale=rounded(right.scale, kind)))
        if kind != case.dtype:
            yield variant(f"the result was rounded to {kind}", right, rounded(right.value, kind))


Formulas = Iterator[tuple[str, Formula]]


def _orders(x: torch.Tensor, right: Formula) -> Formulas:
    """Weight, bias or mean left out or used twice."""
    eps = right.eps
    weight, bias = right.weight, right.bias
    yield "the weight was left out", replace(right, weight=torch.ones_like(weight))
    yield "the bias was left out", replace(right, bias=torch.zeros_like(bias))
    yield "weight and bias were left out", replace(right, weight=torch.ones_like(weight), bias=torch.zeros_like(bias))
    yield "the bias was added before the weight", replace(right, bias=bias * weight)
    yield "the bias was added twice", replace(right, bias=2.0 * bias)
    yield "the weight was 1 + weight", replace(right, weight=1.0 + weight)
    square = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + eps)
    yield "the mean was not subtracted", replace(right, centered=x, scale=square)
    yield "the mean was not subtracted from x", replace(right, centered=x)
    yield "it was not divided by the standard deviation", replace(right, scale=torch.ones_like(right.scale))


def _variances(x: torch.Tensor, right: Formula, mean: torch.Tensor, variance: torch.Tensor) -> Formulas:
    eps = right.eps
    n = x.shape[1]
    yield "it was divided by the variance, not by its root", replace(right, scale=right.scale.square())
    yield "eps was outside the root", replace(right, scale=1.0 / (variance.sqrt() + eps))
    yield "eps was added twice", replace(right, scale=torch.rsqrt(variance + 2.0 * eps))
    yield "eps was left out", replace(right, scale=torch.rsqrt(variance))
    for other in EPS_VALUES:
        if other != eps:
            yield f"eps was {other:g}", replace(right, scale=torch.rsqrt(variance + other))
    for more in padding_lengths(n, largest=PADDED):
        beyond = f"{count_were(more, 'column')} counted beyond the row, of 0, in the"
        padded = variance + mean.square() * (more / n)
        yield f"{beyond} variance", replace(right, scale=torch.rsqrt(padded + eps))
        mean_of_all = mean * (n / (n + more))
        around = x - mean_of_all
        for which, squares in (
            ("mean and variance", around.square().sum(dim=1, keepdim=True) + more * mean_of_all.square()),
            ("mean", around.square().sum(dim=1, keepdim=True) * ((n + more) / n)),
        ):
            scale = torch.rsqrt(squares / (n + more) + eps)
            yield f"{beyond} {which}", replace(right, centered=around, scale=scale)
        scale = torch.rsqrt(variance * (n / (n + more)) + eps)
        yield f"the variance was divided by {n + more}, not by N", replace(right, scale=scale)
    if n > 1:
        yield "the variance was divided by N - 1", replace(right, scale=torch.rsqrt(variance * n / (n - 1) + eps))
    yield "the sum of squares was used instead of the variance", replace(right, scale=torch.rsqrt(variance * n + eps))
    square = x.square().mean(dim=1, keepdim=True)
    yield "the mean square was used instead of the variance", replace(right, scale=torch.rsqrt(square + eps))
    single = x.float()
    squares = (single * single).cumsum(dim=1)[:, -1:] / n
    cancelled = (squares - mean.float().square()).double()
    yield "the variance was E[x^2] - E[x]^2 in float32", replace(right, scale=torch.rsqrt(cancelled + eps))
    for size in SIZES[1:]:
        if size < n:
            chunks = [x[:, span] for span in spans(n, size)]
            within = sum(each.var(dim=1, keepdim=True, correction=0) * each.shape[1] for each in chunks) / n
            mistake = f"the distances of the means of blocks of {size} were left out of the variance"
            yield mistake, replace(right, scale=torch.rsqrt(within + eps))


def _means(x: torch.Tensor, right: Formula) -> Formulas:
    """Wrongly combined means of blocks, or means of too few columns."""
    eps = right.eps
    n = x.shape[1]
    for size in SIZES[1:]:
        if size < n and n % size:
            chunks = [x[:, span] for span in spans(n, size)]
            means = [each.mean(dim=1, keepdim=True) for each in chunks]
            mean = sum(means) / len(means)
            centered = x - mean
            mistake = f"the means of blocks of {size} and of the rest counted alike"
            spread = centered.square().mean(dim=1, keepdim=True)
            yield mistake, replace(right, centered=centered, scale=torch.rsqrt(spread + eps))
    for kept in shortened_lengths(n):
        left = count_were(n - kept, "column")
        some = x[:, :kept]
        centered = x - some.mean(dim=1, keepdim=True)
        variance = centered[:, :kept].square().mean(dim=1, keepdim=True)
        mistake = f"the last {left} missing in mean and variance"
        yield mistake, replace(right, centered=centered, scale=torch.rsqrt(variance + eps))


def _other_statistics(x: torch.Tensor, right: Formula, part: Part) -> Formulas:
    """Statistics of other elements than the row's."""
    eps = right.eps
    down = x - x.mean(dim=0, keepdim=True)
    scale = torch.rsqrt(down.square().mean(dim=0, keepdim=True) + eps)
    yield "mean and variance were of columns", replace(right, centered=down[part[0]], scale=scale)
    whole = x - x.mean()
    scale = torch.rsqrt(whole.square().mean() + eps).expand(right.scale.shape)
    yield "mean and variance were of the whole", replace(right, centered=whole[part[0]], scale=scale)
    if x.shape[0] > 1:
        means = x.mean(dim=1, keepdim=True)
        scale = torch.rsqrt((x - means).square().mean(dim=1, keepdim=True) + eps).roll(1, 0)[part[0]]
        centered = x[part[0]] - means.roll(1, 0)[part[0]]
        yield "mean and variance were those of the row before", replace(right, centered=centered, scale=scale)
