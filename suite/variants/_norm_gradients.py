"""Variants of the gradients of norms: terms and factors left out, missing rows or columns, other digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from suite import ops
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import count_were, shortened_lengths
from suite.variants._eps import EPS_VALUES
from suite.variants._rounding import rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of elements of an operand; every variant computes all results again."""

Results = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Norm:
    """The operands of a norm's gradient and the parts of its formula, float64; the mean is 0 in rms_norm."""

    x: torch.Tensor
    weight: torch.Tensor
    dy: torch.Tensor
    eps: float
    centered: bool

    @property
    def difference(self) -> torch.Tensor:
        return self.x - self.x.mean(dim=1, keepdim=True) if self.centered else self.x

    @property
    def mean_square(self) -> torch.Tensor:
        return self.difference.square().mean(dim=1, keepdim=True)

    @property
    def scale(self) -> torch.Tensor:
        return torch.rsqrt(self.mean_square + self.eps)

    def results(self, scale: torch.Tensor | None = None) -> Results:
        """Return dx, dweight, and dbias if centered."""
        scale = self.scale if scale is None else scale
        g, normed = self.dy * self.weight, self.difference * scale
        mean = g.mean(dim=1, keepdim=True) if self.centered else 0.0
        dx = scale * (g - mean - normed * (g * normed).mean(dim=1, keepdim=True))
        return self.with_dx(dx, normed)

    def with_dx(self, dx: torch.Tensor, normed: torch.Tensor | None = None) -> Results:
        """Return the right sums over rows beside another dx."""
        normed = self.difference * self.scale if normed is None else normed
        return (dx, (self.dy * normed).sum(0), *([self.dy.sum(0)] if self.centered else []))


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    op = ops.get(case.operation)
    if inputs[0].numel() > MAX_ELEMENTS or not inputs[0].numel():
        return
    x, weight, dy = (each.double() for each in inputs)
    norm = Norm(x, weight, dy, float(op.arguments(case)["eps"]), len(op.output_shapes(case)) == 3)
    pieces = sorted(op.truth(inputs, case), key=lambda each: each.index[0].start)
    right, limit = (torch.cat([getattr(each, name) for each in pieces])[part[0]] for name in ("value", "limit"))
    for mistake, results in _mistakes(norm, case.dtype):
        value = torch.cat([each.flatten() for each in results])[part[0]]
        larger = (value / right).abs().nan_to_num(1.0, posinf=1.0).clamp(min=1.0)
        yield Variant(mistake, value, limit * larger)


def _mistakes(norm: Norm, dtype: str) -> Iterator[tuple[str, Results]]:
    yield from _terms(norm)
    yield from _scales(norm)
    yield from _ranges(norm)
    yield from _digits(norm, dtype)


def _terms(norm: Norm) -> Iterator[tuple[str, Results]]:
    """Terms and factors that are left out of dx, or of the sums over rows."""
    scale, g = norm.scale, norm.dy * norm.weight
    normed = norm.difference * scale
    b = (g * normed).mean(dim=1, keepdim=True)
    a = g.mean(dim=1, keepdim=True) if norm.centered else torch.zeros_like(b)
    right = norm.results()
    yield "dx was s g, without the derivative of the scale", norm.with_dx(scale * (g - a))
    if norm.centered:
        yield "the mean of g was left out of dx", norm.with_dx(scale * (g - normed * b))
        yield "the derivative of the mean and of the scale was left out of dx", norm.with_dx(scale * g)
        yield "x was not centered in the sums over rows", (right[0], (norm.dy * norm.x * scale).sum(0), right[2])
        yield "dbias was that of g", (*right[:2], g.sum(0))
        yield "dweight and dbias were exchanged", (right[0], right[2], right[1])
    yield "dx was not multiplied by s", norm.with_dx(g - a - normed * b)
    yield "dx was multiplied by s twice", norm.with_dx(scale.square() * (g - a - normed * b))
    yield "the sum was used instead of the mean of g xhat", norm.with_dx(scale * (g - a - normed * b * norm.x.shape[1]))
    yield "the second term was added", norm.with_dx(scale * (g - a + normed * b))
    unweighted = replace(norm, weight=torch.ones_like(norm.weight))
    yield "the weight was left out of dx", unweighted.results()
    of_y = (norm.dy * normed).mean(dim=1, keepdim=True)
    yield "the weight was left out of the mean of g xhat", norm.with_dx(scale * (g - a - normed * of_y))
    yield "the weight was multiplied into dx at its end", norm.with_dx(unweighted.results()[0] * norm.weight)
    rest = right[2:]
    yield "dweight was the sum of dy x, without the scale", (right[0], (norm.dy * norm.difference).sum(0), *rest)
    yield "dweight was that of g", (right[0], (g * normed).sum(0), *rest)
    yield "the sums over rows were means", (right[0], *(each / len(norm.x) for each in right[1:]))
    yield "dweight was 0", (right[0], torch.zeros_like(right[1]), *rest)


def _scales(norm: Norm) -> Iterator[tuple[str, Results]]:
    n, mean = norm.x.shape[1], norm.mean_square
    yield "eps was left out", norm.results(torch.rsqrt(mean))
    yield "eps was outside the root", norm.results(1.0 / (mean.sqrt() + norm.eps))
    for other in EPS_VALUES:
        if other != norm.eps:
            yield f"eps was {other:g}", norm.results(torch.rsqrt(mean + other))
    if n > 1:
        yield "the mean square was divided by N - 1", norm.results(torch.rsqrt(mean * n / (n - 1) + norm.eps))


def _ranges(norm: Norm) -> Iterator[tuple[str, Results]]:
    """Rows or columns that are left out of sums."""
    m, n = norm.x.shape
    right = norm.results()
    scale, g = norm.scale, norm.dy * norm.weight
    normed = norm.difference * scale
    for kept in shortened_lengths(m):
        sums = replace(norm, x=norm.x[:kept], dy=norm.dy[:kept]).results()[1:]
        yield f"the last {count_were(m - kept, 'row')} left out of the sums over rows", (right[0], *sums)
        yield f"the last {count_were(m - kept, 'row')} left out of dweight", (right[0], sums[0], *right[2:])
    for kept in shortened_lengths(n):
        b = (g * normed)[:, :kept].sum(dim=1, keepdim=True) / n
        a = g.mean(dim=1, keepdim=True) if norm.centered else 0.0
        left = count_were(n - kept, "column")
        yield f"the last {left} left out of the mean of g xhat", norm.with_dx(scale * (g - a - normed * b))


def _digits(norm: Norm, dtype: str) -> Iterator[tuple[str, Results]]:
    right = norm.results()
    for kind in sixteen_bit_formats(dtype):
        yield f"the scale was rounded to {kind}", norm.results(rounded(norm.scale, kind))
        terms = norm.dy * (norm.difference * norm.scale)
        yield f"terms of dweight were rounded to {kind}", (right[0], rounded(terms, kind).sum(0), *right[2:])
        if len(norm.x) <= 1024:
            total = torch.zeros_like(right[1])
            for row in terms:
                total = rounded(total + row, kind)
            yield f"the sum of dweight was rounded to {kind} after each row", (right[0], total, *right[2:])
        if kind != dtype:
            few = replace(norm, x=rounded(norm.x, kind), dy=rounded(norm.dy, kind), weight=rounded(norm.weight, kind))
            yield f"the operands were rounded to {kind}", few.results()
            yield f"the results were rounded to {kind}", tuple(rounded(each, kind) for each in right)
