"""Variants of add_rms_norm: another sum, another mean, another place for eps, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from suite import ops
from suite.numerics.bounds import rounding_limit
from suite.ops.add_rms_norm import add_rms_norm_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import count_were, shortened_lengths
from suite.variants._eps import EPS_VALUES
from suite.variants._rounding import rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of elements of an operand; every variant computes both results again."""

Norm = tuple[str, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""A mistake, with the numbers that are normed, the weight, the scale of each row, and the second result."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if inputs[0].numel() > MAX_ELEMENTS:
        return
    x, residual, weight = (each.double() for each in inputs)
    eps = float(ops.get("add_rms_norm").arguments(case)["eps"])
    for mistake, normed, w, scale, second in _mistakes(x, residual, weight, eps, case.dtype):
        value = normed * scale * w
        limit = add_rms_norm_limit(
            normed, w.expand(normed.shape), scale.expand(len(normed), 1), value, math.prod(case.shape), case.dtype
        )
        both = torch.cat([value.flatten(), second.flatten()])[part[0]]
        bounds = torch.cat([limit.flatten(), rounding_limit(second, case.dtype).flatten()])[part[0]]
        yield Variant(mistake, both, bounds)


def _mistakes(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, dtype: str) -> Iterator[Norm]:
    r, n = x + residual, x.shape[1]
    scale = _scale(r, eps)
    one = torch.ones_like(weight)
    yield "x alone was normed, without the residual", x, weight, _scale(x, eps), r
    yield "the residual alone was normed", residual, weight, _scale(residual, eps), r
    yield "the residual was added twice", r + residual, weight, _scale(r + residual, eps), r + residual
    yield "x was subtracted from the residual", residual - x, weight, _scale(residual - x, eps), residual - x
    yield "the second result was x", r, weight, scale, x
    yield "the second result was the residual", r, weight, scale, residual
    yield "the second result was y", r, weight, scale, r * scale * weight
    yield "y was not normed", r, weight, torch.ones_like(scale), r
    yield "the mean square was that of x", r, weight, _scale(x, eps), r
    yield "the weight was left out", r, one, scale, r
    yield "the weight was 1 + weight", r, 1.0 + weight, scale, r
    mean = r.square().mean(dim=1, keepdim=True)
    yield "eps was left out", r, weight, torch.rsqrt(mean), r
    yield "eps was outside the root", r, weight, 1.0 / (mean.sqrt() + eps), r
    for other in EPS_VALUES:
        if other != eps:
            yield f"eps was {other:g}", r, weight, torch.rsqrt(mean + other), r
    yield "the sum was used instead of the mean", r, weight, torch.rsqrt(mean * n + eps), r
    if n > 1:
        yield "the mean square was divided by N - 1", r, weight, torch.rsqrt(mean * n / (n - 1) + eps), r
    for kept in shortened_lengths(n):
        left = count_were(n - kept, "column")
        squares = r[:, :kept].square().sum(dim=1, keepdim=True)
        yield f"the last {left} missing in the mean", r, weight, torch.rsqrt(squares / kept + eps), r
        yield f"the last {left} missing in the sum of squares", r, weight, torch.rsqrt(squares / n + eps), r
    for kind in sixteen_bit_formats(dtype):
        yield f"the scale was rounded to {kind}", r, weight, rounded(scale, kind), r
        if kind != dtype:
            few = rounded(r, kind)
            yield f"r was rounded to {kind}", few, weight, _scale(few, eps), few
            yield f"r was rounded to {kind} before the norm", few, weight, _scale(few, eps), r


def _scale(r: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.rsqrt(r.square().mean(dim=1, keepdim=True) + eps)
