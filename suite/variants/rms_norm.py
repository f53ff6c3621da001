"""Variants of rms_norm: another mean, another place for eps, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from suite import ops
from suite.ops.rms_norm import rms_norm_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import count_were, padding_lengths, shortened_lengths
from suite.variants._eps import EPS_VALUES
from suite.variants._rounding import rounded, sixteen_bit_formats

PADDED = 4096
"""Largest power of two to which the columns of a row may be padded."""
MAX_ELEMENTS = 2**20
"""Largest number of elements of an input; larger ones have only variants that need no other rows than the part's."""
MAX_STEPS = 1024
"""Largest number of additions of a simulated sum."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x, weight = inputs[0][part[0]].double(), inputs[1].double()
    eps = float(ops.get("rms_norm").arguments(case)["eps"])
    mean = x.square().mean(dim=1, keepdim=True)
    scale = torch.rsqrt(mean + eps)
    for mistake, y, w, row_scale in formulas(inputs, x, weight, mean, part, eps):
        value = y * row_scale * w
        limit = rms_norm_limit(x, weight.expand(x.shape), row_scale, value, math.prod(case.shape), case.dtype)
        yield Variant(mistake, value[:, part[1]], limit[:, part[1]])
    for mistake, value in _digits(x, weight, mean, scale, case, eps):
        limit = rms_norm_limit(x, weight, scale, value, math.prod(case.shape), case.dtype)
        yield Variant(mistake, value[:, part[1]], limit[:, part[1]])


Formula = tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]
"""A mistake, with the x, the weight and the scale of each row that it uses."""


def formulas(
    inputs: Inputs, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, part: Part, eps: float
) -> Iterator[Formula]:
    m, n = inputs[0].shape
    scale = torch.rsqrt(mean + eps)
    one = torch.ones_like(weight)
    yield "the weight was left out", x, one, scale
    yield "the weight was 1 + weight", x, 1.0 + weight, scale
    yield "the weight was multiplied by twice", x, weight.square(), scale
    yield "the scale was left out", x, weight, torch.ones_like(scale)
    yield "it was divided by the mean square, not by its root", x, weight, scale.square()
    yield "eps was left out", x, weight, torch.rsqrt(mean)
    yield "eps was outside the root", x, weight, 1.0 / (mean.sqrt() + eps)
    yield "eps was added twice", x, weight, torch.rsqrt(mean + 2.0 * eps)
    for other in EPS_VALUES:
        if other != eps:
            yield f"eps was {other:g}", x, weight, torch.rsqrt(mean + other)
    for more in padding_lengths(n, largest=PADDED):
        yield (
            f"the mean square was divided by {n + more}, not by N",
            x,
            weight,
            torch.rsqrt(mean * n / (n + more) + eps),
        )
    yield "the sum was used instead of the mean", x, weight, torch.rsqrt(mean * n + eps)
    apart = x - x.mean(dim=1, keepdim=True)
    yield "the mean was subtracted first", apart, weight, torch.rsqrt(apart.square().mean(dim=1, keepdim=True) + eps)
    yield (
        "the mean of |x| was used instead of the root of the mean square",
        x,
        weight,
        torch.rsqrt(x.abs().mean(dim=1, keepdim=True).square() + eps),
    )
    if n > 1:
        yield "the mean square was divided by N - 1", x, weight, torch.rsqrt(mean * n / (n - 1) + eps)
    if m <= n:
        yield "weight[i] was used instead of weight[j]", x, weight[:m][part[0], None], scale
    for kept in shortened_lengths(n):
        left = count_were(n - kept, "column")
        squares = x[:, :kept].square().sum(dim=1, keepdim=True)
        yield f"the last {left} missing in the mean", x, weight, torch.rsqrt(squares / kept + eps)
        yield f"the last {left} missing in the sum of squares", x, weight, torch.rsqrt(squares / n + eps)
    if inputs[0].numel() <= MAX_ELEMENTS:
        squares = inputs[0].double().square()
        yield "the mean was of the whole", x, weight, torch.rsqrt(squares.mean() + eps).expand(scale.shape)
        yield "the mean was of columns", x, weight, torch.rsqrt(squares.mean(dim=0, keepdim=True) + eps)
        if m > 1:
            before = torch.rsqrt(squares.mean(dim=1, keepdim=True) + eps).roll(1, 0)[part[0]]
            yield "the scale was that of the row before", x, weight, before


def _digits(
    x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, case: Case, eps: float
) -> Iterator[tuple[str, torch.Tensor]]:
    """Intermediate roundings."""
    n = x.shape[1]
    for kind in sixteen_bit_formats(case.dtype):
        yield f"x * scale was rounded to {kind} before the weight", rounded(x * scale, kind) * weight
        yield f"the scale was rounded to {kind}", x * rounded(scale, kind) * weight
        if kind != case.dtype:
            yield f"x was rounded to {kind}", rounded(x, kind) * scale * weight
            yield f"the result was rounded to {kind}", rounded(x * scale * weight, kind)
        squares = rounded(x.square(), kind)
        rounded_scale = torch.rsqrt(squares.mean(dim=1, keepdim=True) + eps)
        yield f"squares were rounded to {kind}", x * rounded_scale * weight
        total = rounded(squares.sum(dim=1, keepdim=True), kind)
        yield f"squares and their sum were rounded to {kind}", x * torch.rsqrt(total / n + eps) * weight
        yield f"the mean was rounded to {kind}", x * torch.rsqrt(rounded(mean, kind) + eps) * weight
        if n <= MAX_STEPS:
            acc = torch.zeros_like(mean)
            for column in squares.split(1, dim=1):
                acc = rounded(acc + column, kind)
            yield f"the sum of squares so far was rounded to {kind}", x * torch.rsqrt(acc / n + eps) * weight
