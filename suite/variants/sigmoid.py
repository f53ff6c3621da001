"""Variants of sigmoid: other formulas, other digits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suite.ops.sigmoid import sigmoid_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats

CLIPS = (10.0, 15.0, 16.0, 20.0, 30.0, 40.0, 50.0, 80.0, 88.0)
"""Magnitudes to which x may be clipped against overflow."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x = inputs[0][part].double()

    def variant(mistake: str, value: torch.Tensor) -> Variant:
        return Variant(mistake, value, sigmoid_limit(value.clamp(0.0, 1.0), case.dtype))

    yield variant("exp(x) was used instead of exp(-x): 1 - y", torch.sigmoid(-x))
    yield variant("it was the piecewise linear approximation, x / 6 + 1 / 2", (x / 6.0 + 0.5).clamp(0.0, 1.0))
    yield variant("it was tanh(x)", torch.tanh(x))
    yield variant("it was tanh(x / 2)", torch.tanh(0.5 * x))
    single = torch.exp(x.float())
    yield variant("exp(x) / (1 + exp(x)) overflowed", (single / (1.0 + single)).double())
    single = 0.5 * (1.0 + torch.tanh(0.5 * x.float()))
    yield variant("digits of (1 + tanh(x / 2)) / 2 were cancelled", single.double())
    for clip in CLIPS:
        yield variant(f"x was clipped to +-{clip:g}", torch.sigmoid(x.clamp(-clip, clip)))
    for kind in sixteen_bit_formats(case.dtype):
        if kind != case.dtype:
            yield variant(f"x was rounded to {kind}", torch.sigmoid(rounded(x, kind)))
            yield variant(f"x and y were rounded to {kind}", rounded(torch.sigmoid(rounded(x, kind)), kind))
        for form, (sign, e) in {"exp(-x)": (None, torch.exp(-x)), "exp(-|x|)": (x < 0, torch.exp(-x.abs()))}.items():
            small = rounded(e, kind)
            above = 1.0 if sign is None else torch.where(sign, small, 1.0)
            yield variant(f"{form} was rounded to {kind}", above / (1.0 + small))
            each = rounded(above / rounded(1.0 + small, kind), kind)
            yield variant(f"each step was rounded to {kind}", each)
