"""Variants of silu_mul: another activation, exchanged operands, other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from suite.numerics.bounds import limit
from suite.ops.silu_mul import gate, product_error
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats

ACTIVATIONS = ("silu", "gelu_tanh")


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    a, b = (each[part].double() for each in inputs)
    activation = str(case.option("activation", "silu"))
    of = gate(a, activation)
    right = a * of.s

    def variant(mistake: str, value: torch.Tensor) -> Variant:
        return Variant(mistake, value, limit(product_error(a, b, of, value), value, case.dtype))

    for mistake, active in activations(a, activation):
        yield variant(mistake, active * b)
    other = gate(b, activation)
    yield Variant(
        "act(b) a was used instead of act(a) b",
        b * other.s * a,
        limit(product_error(b, a, other, b * other.s * a), b * other.s * a, case.dtype),
    )
    yield variant("b was left out", right)
    yield variant("the sum was used instead of the product", right + b)
    for kind in sixteen_bit_formats(case.dtype):
        yield variant(f"act(a) was rounded to {kind} before the product", rounded(right, kind) * b)
        yield variant(f"the sigmoid was rounded to {kind}", rounded(of.s, kind) * a * b)
        if kind != case.dtype:
            yield variant(f"the result was rounded to {kind}", rounded(right * b, kind))
            yield variant(f"a and b were rounded to {kind}", _of(rounded(a, kind), activation) * rounded(b, kind))


def activations(a: torch.Tensor, activation: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield other activations of a."""
    for other in ACTIVATIONS:
        if other != activation:
            yield f"the activation was {other}", _of(a, other)
    yield "the activation was gelu with erf", 0.5 * a * (1.0 + torch.erf(a / math.sqrt(2.0)))
    yield "the activation was a sigmoid(1.702 a)", a * torch.sigmoid(1.702 * a)
    yield "the activation was the sigmoid alone", torch.sigmoid(a)
    yield "the activation was relu", a.clamp(min=0.0)
    yield "the activation was left out", a
    yield "the activation was a sigmoid(-a)", a * torch.sigmoid(-a)
    yield "the activation was tanh", torch.tanh(a)


def _of(a: torch.Tensor, activation: str) -> torch.Tensor:
    return a * gate(a, activation).s
