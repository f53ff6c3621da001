"""Variants of silu_mul_grad: another derivative, exchanged gradients, other digits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite.numerics.bounds import limit
from suite.numerics.formats import unit_roundoff
from suite.ops.silu_mul import gate, product_error
from suite.ops.silu_mul_grad import slope, slope_error
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats
from suite.variants.silu_mul import ACTIVATIONS

MAX_ELEMENTS = 2**20
"""Largest number of elements of an operand; every variant computes both results again."""

Gradients = tuple[torch.Tensor, torch.Tensor]


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if inputs[0].numel() > MAX_ELEMENTS:
        return
    a, b, dy = (each.double() for each in inputs)
    activation = str(case.option("activation", "silu"))
    of = gate(a, activation)
    errors = [
        (dy * b).abs() * slope_error(a, of) + (dy * b * slope(a, of)).abs() * (3.0 * unit_roundoff("float32")),
        product_error(a, dy, of, dy * a * of.s),
    ]
    error = torch.cat([each.flatten() for each in errors])[part[0]]
    for mistake, both in _mistakes(a, b, dy, activation, case.dtype):
        value = torch.cat([each.flatten() for each in both])[part[0]]
        yield Variant(mistake, value, limit(error, value, case.dtype))


def _mistakes(
    a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor, activation: str, dtype: str
) -> Iterator[tuple[str, Gradients]]:
    of = gate(a, activation)
    right_slope, active = slope(a, of), a * of.s
    da, db = dy * b * right_slope, dy * active
    for other in ACTIVATIONS:
        if other != activation:
            another = gate(a, other)
            yield f"the activation was {other}", (dy * b * slope(a, another), dy * a * another.s)
    yield "the derivative was s", (dy * b * of.s, db)
    yield "the derivative was s (1 - s), that of the sigmoid", (dy * b * of.s * (1.0 - of.s), db)
    yield "the derivative was a s (1 - s), without s", (dy * b * (right_slope - of.s), db)
    yield "the derivative was s (1 + a), without 1 - s", (dy * b * of.s * (1.0 + a * of.slope), db)
    yield "the derivative was s (1 - a (1 - s))", (dy * b * (2.0 * of.s - right_slope), db)
    if activation != "silu":
        yield "the derivative of w was left out", (dy * b * (of.s + a * of.s * (1.0 - of.s)), db)
    yield "da lacked b", (dy * right_slope, db)
    yield "da lacked dy", (b * right_slope, db)
    yield "db lacked dy", (da, active)
    yield "db was dy a, without the gate", (da, dy * a)
    yield "da and db were exchanged", (db, da)
    yield "b was replaced by da before db was computed from it", (da, dy * b * of.s)
    for kind in sixteen_bit_formats(dtype):
        s = rounded(of.s, kind)
        yield f"the sigmoid was rounded to {kind}", (dy * b * (s + a * of.slope * s * (1.0 - s)), dy * a * s)
        yield f"act(a) was rounded to {kind} before the product", (da, dy * rounded(active, kind))
        yield f"dy b was rounded to {kind}", (rounded(dy * b, kind) * right_slope, db)
        if kind != dtype:
            yield f"the results were rounded to {kind}", (rounded(da, kind), rounded(db, kind))
