"""Variants of linear_sigmoid_grad: other slopes, a wrong bias, missing rows or columns, other digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from suite.numerics.formats import unit_roundoff
from suite.ops.linear_sigmoid import logits
from suite.ops.linear_sigmoid_grad import Derivative, Sum, derivative, multiply, sum_over_rows
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, count_were, shortened_lengths
from suite.variants._rounding import coarser_formats, rounded, sixteen_bit_formats

MAX_PRODUCTS = 2**24
"""Largest number of terms of each of the three products; every variant computes all of them again."""
MAX_STEPS = 1024
"""Largest number of additions of a simulated sum."""
SIGMOID_ERROR = 8.0
"""Error of dz from the sigmoid's factors, in float32 unit roundoffs of dy: an exponential, a quotient, products."""


@dataclass(frozen=True)
class Layer:
    """The operands and the sigmoid y of the logits, float64."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    dy: torch.Tensor
    y: torch.Tensor
    case: Case

    def derivative(self, dz: torch.Tensor, right: Derivative) -> Derivative:
        """Return another dz, with errors as large as for the right one."""
        sigmoid_error = (self.dy * (SIGMOID_ERROR * unit_roundoff("float32"))).square()
        own = sigmoid_error + (dz * unit_roundoff(self.case.dtype)).square()
        return Derivative(dz, right.shift, right.variance + own / 3.0)

    def results(self, gradient: Derivative) -> list[Sum]:
        """Return dx, dweight and dbias."""
        return [multiply(gradient, self.weight), multiply(gradient, self.x, transposed=True), sum_over_rows(gradient)]


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    m, n, k = case.shape
    if not 0 < m * n * k <= MAX_PRODUCTS:
        return
    x, weight, bias, dy = (each.double() for each in inputs)
    layer = Layer(x, weight, bias, dy, torch.sigmoid(logits(x, weight, bias, case).z), case)
    right = derivative(x, weight, bias, dy, case)
    for mistake, sums in _mistakes(layer, right):
        bounds = [
            each.limit(terms, m * k + n * k + n, case, products=products)
            for each, terms, products in zip(sums, (n, m, m), (True, True, False), strict=True)
        ]
        value, limit = (
            torch.cat([each.flatten() for each in tensors]) for tensors in ([s.value for s in sums], bounds)
        )
        yield Variant(mistake, value[part], limit[part])


def _mistakes(layer: Layer, right: Derivative) -> Iterator[tuple[str, list[Sum]]]:
    for mistake, dz in _slopes(layer):
        yield mistake, layer.results(layer.derivative(dz, right))
    for mistake, other in _operands(layer):
        yield mistake, other.results(derivative(other.x, other.weight, other.bias, other.dy, other.case))
    sums = layer.results(right)
    yield from _arrangements(layer, right, sums)
    yield from _ranges(layer, right, sums)
    yield from _digits(layer, right, sums)


def _slopes(layer: Layer) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each mistake with its dz."""
    y, dy = layer.y, layer.dy
    yield "dz was dy y, without 1 - y", dy * y
    yield "dz was dy (1 - y), without y", dy * (1.0 - y)
    yield "dz was y (1 - y), without dy", y * (1.0 - y)
    yield "dz was dy, without the derivative of the sigmoid", dy
    yield "dz was dy (1 - y^2), the derivative of tanh", dy * (1.0 - y.square())
    for kind in coarser_formats(layer.case.dtype) if layer.case.dtype == "float32" else ():
        few = rounded(y, kind)
        yield f"the output was rounded to {kind}", dy * few * (1.0 - few)


def _operands(layer: Layer) -> Iterator[tuple[str, Layer]]:
    yield "the bias was left out of the logits", replace(layer, bias=torch.zeros_like(layer.bias))
    yield "the bias was added to the logits twice", replace(layer, bias=2.0 * layer.bias)
    kinds = (*coarser_formats(layer.case.dtype), *(("tf32",) if layer.case.dtype == "float32" else ()))
    for kind in kinds if layer.case.precision == "ieee" else ():
        x, weight, dy = (rounded(each, kind) for each in (layer.x, layer.weight, layer.dy))
        yield f"x, the weight and dy were rounded to {kind}", replace(layer, x=x, weight=weight, dy=dy)


def _arrangements(layer: Layer, right: Derivative, sums: list[Sum]) -> Iterator[tuple[str, list[Sum]]]:
    dx, dweight, dbias = sums
    m, n, k = layer.case.shape
    if n == k:
        yield "the weight was read transposed in dx", [multiply(right, layer.weight.T), dweight, dbias]
        yield "dweight was transposed", [dx, _map_fields(dweight, lambda each: each.T), dbias]
    if m == n:
        yield (
            "dbias added up the columns of dz",
            [dx, dweight, sum_over_rows(_map_derivative(right, lambda each: each.T))],
        )
    yield "dbias was divided by M", [dx, dweight, _times(dbias, 1.0 / m)]
    yield "dweight was divided by M", [dx, _times(dweight, 1.0 / m), dbias]
    yield "dweight and dbias were divided by M", [dx, _times(dweight, 1.0 / m), _times(dbias, 1.0 / m)]
    yield "dbias was 0", [dx, dweight, _times(dbias, 0.0)]


def _ranges(layer: Layer, right: Derivative, sums: list[Sum]) -> Iterator[tuple[str, list[Sum]]]:
    """Rows or columns of dz that are left out, or added twice."""
    dx, dweight, dbias = sums
    m, n, _ = layer.case.shape
    for kept in shortened_lengths(m):
        rows = _map_derivative(right, _rows(kept))
        weight_sum, bias_sum = multiply(rows, layer.x[:kept], transposed=True), sum_over_rows(rows)
        gone = f"the last {count_were(m - kept, 'row')} left out of"
        yield f"{gone} dweight", [dx, weight_sum, dbias]
        yield f"{gone} dbias", [dx, dweight, bias_sum]
        yield f"{gone} dweight and dbias", [dx, weight_sum, bias_sum]
    for kept in shortened_lengths(n):
        columns = multiply(_map_derivative(right, _columns(kept)), layer.weight[:kept])
        yield f"the last {count_were(n - kept, 'column')} left out of dx", [columns, dweight, dbias]
    for size in SIZES:
        if size < m:
            rows = _map_derivative(right, _rows(size))
            weight_sum = _plus(dweight, multiply(rows, layer.x[:size], transposed=True))
            bias_sum = _plus(dbias, sum_over_rows(rows))
            gone = f"the first {count_were(size, 'row')} added to"
            yield f"{gone} dweight twice", [dx, weight_sum, dbias]
            yield f"{gone} dbias twice", [dx, dweight, bias_sum]
            yield f"{gone} dweight and dbias twice", [dx, weight_sum, bias_sum]
        if size < n:
            more = multiply(_map_derivative(right, _columns(size)), layer.weight[:size])
            yield f"the first {count_were(size, 'column')} added to dx twice", [_plus(dx, more), dweight, dbias]


def _digits(layer: Layer, right: Derivative, sums: list[Sum]) -> Iterator[tuple[str, list[Sum]]]:
    dx, dweight, dbias = sums
    for kind in coarser_formats(layer.case.dtype) if layer.case.dtype == "float32" else ():
        yield f"dz was rounded to {kind}", layer.results(replace(right, dz=rounded(right.dz, kind)))
        yield f"the results were rounded to {kind}", [_map_fields(each, _rounding(kind), only="value") for each in sums]
    for kind in sixteen_bit_formats(layer.case.dtype):
        if len(right.dz) <= MAX_STEPS:
            total = torch.zeros_like(dbias.value)
            for row in right.dz:
                total = rounded(total + row, kind)
            yield f"the sum of dbias was rounded to {kind} after each row", [dx, dweight, replace(dbias, value=total)]


FIELDS = ("value", "shift", "variance", "squares")


def _map_fields(total: Sum, change: Callable[[torch.Tensor], torch.Tensor], only: str = "") -> Sum:
    fields = [only] if only else FIELDS
    return replace(total, **{name: change(getattr(total, name)) for name in fields})


def _map_derivative(gradient: Derivative, change: Callable[[torch.Tensor], torch.Tensor]) -> Derivative:
    return Derivative(change(gradient.dz), change(gradient.shift), change(gradient.variance))


def _times(total: Sum, factor: float) -> Sum:
    return Sum(total.value * factor, total.shift * factor, total.variance * factor**2, total.squares * factor**2)


def _plus(one: Sum, other: Sum) -> Sum:
    return Sum(*(getattr(one, name) + getattr(other, name) for name in FIELDS))


def _rows(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda each: each[:count]


def _columns(count: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda each: each[:, :count]


def _rounding(kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda each: rounded(each, kind)
