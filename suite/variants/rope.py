"""Variants of rope: other pairs, other angles, results that are read too early, other digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from suite.ops.rope import joined, parts, rope_limit, rotated, sizes_of_products
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of elements of an operand; every variant computes both results again."""


@dataclass(frozen=True)
class Rotation:
    """An operand, (B, S, H, D), and the angles that rotate it; sin has the sign of the direction. float64."""

    x: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    layout: str

    def value(self) -> torch.Tensor:
        return rotated(self.x, self.cos, self.sin, self.layout)

    def products(self) -> torch.Tensor:
        return sizes_of_products(self.x, self.cos, self.sin, self.layout)

    def with_angles(self, cos: torch.Tensor, sin: torch.Tensor) -> Rotation:
        return replace(self, cos=cos, sin=sin)


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if max(each.numel() for each in inputs[:2]) > MAX_ELEMENTS:
        return
    q, k, cos, sin = (each.double() for each in inputs)
    sign = -1.0 if case.option("direction") == "inverse" else 1.0
    layout = str(case.option("layout", "halves"))
    right = [Rotation(x, cos, sin * sign, layout) for x in (q, k)]
    products = [each.products() for each in right]
    values = [each.value() for each in right]

    def variant(mistake: str, results: list[torch.Tensor], sizes: list[torch.Tensor] = products) -> Variant:
        value, size = (torch.cat([each.flatten() for each in of_both])[part[0]] for of_both in (results, sizes))
        return Variant(mistake, value, rope_limit(size, value, case.dtype))

    for mistake, changed in _changes(right, layout):
        yield variant(mistake, [each.value() for each in changed], [each.products() for each in changed])
    yield variant("q was not rotated", [q, values[1]])
    yield variant("k was not rotated", [values[0], k])
    yield variant("neither q nor k was rotated", [q, k])
    for mistake, results in _order(right):
        yield variant(mistake, results)
    for mistake, results in _digits(right, case.dtype):
        yield variant(mistake, results)


def _changes(right: list[Rotation], layout: str) -> Iterator[tuple[str, list[Rotation]]]:
    """Yield mistakes in the pairs or in the angles of both operands."""
    other = "pairs" if layout == "halves" else "halves"
    yield f"the layout was {other}, not {layout}", [replace(each, layout=other) for each in right]
    yield "it rotated the other way", [replace(each, sin=-each.sin) for each in right]
    yield "cos and sin were exchanged", [each.with_angles(each.sin, each.cos) for each in right]
    yield "sin was left out", [replace(each, sin=torch.zeros_like(each.sin)) for each in right]
    yield "cos was left out", [replace(each, cos=torch.zeros_like(each.cos)) for each in right]
    tokens, half = right[0].cos.shape
    if tokens > 1:
        for step in (1, -1):
            yield (
                f"the angles were those of the token {'before' if step > 0 else 'after'}",
                [each.with_angles(each.cos.roll(step, 0), each.sin.roll(step, 0)) for each in right],
            )
        yield "the angles were those of the first token", [_at_token(each, 0) for each in right]
        yield (
            "tokens were counted from the end",
            [each.with_angles(each.cos.flip(0), each.sin.flip(0)) for each in right],
        )
    if half > 1:
        yield (
            "the angles of neighbouring pairs were those of one pair in two",
            [each.with_angles(*(_repeated(angles) for angles in (each.cos, each.sin))) for each in right],
        )
    keys = right[1]
    yield "k was rotated the other way", [right[0], replace(keys, sin=-keys.sin)]
    yield "sin was left out in k", [right[0], replace(keys, sin=torch.zeros_like(keys.sin))]


def _at_token(rotation: Rotation, token: int) -> Rotation:
    return rotation.with_angles(*(each[token].expand(each.shape) for each in (rotation.cos, rotation.sin)))


def _repeated(angles: torch.Tensor) -> torch.Tensor:
    """The first angles, each twice, as for cos and sin of D numbers in the layout of pairs."""
    return angles.repeat_interleave(2, dim=1)[:, : angles.shape[1]]


def _order(right: list[Rotation]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield the results of a kernel that overwrites a number before its last read, or forgets one number of a pair."""
    early, first_only = [], []
    for each in right:
        (a, b), c, s = parts(each.x, each.layout), each.cos[:, None], each.sin[:, None]
        first = a * c - b * s
        early.append(joined(first, b * c + first * s, each.layout))
        first_only.append(joined(first, b.clone(), each.layout))
    yield "the second number of a pair was computed from the rotated first", early
    yield "only the first number of each pair was rotated", first_only


def _digits(right: list[Rotation], dtype: str) -> Iterator[tuple[str, list[torch.Tensor]]]:
    for kind in sixteen_bit_formats(dtype):
        results = []
        for each in right:
            (a, b), c, s = parts(each.x, each.layout), each.cos[:, None], each.sin[:, None]
            first = rounded(a * c, kind) - rounded(b * s, kind)
            second = rounded(b * c, kind) + rounded(a * s, kind)
            results.append(joined(first, second, each.layout))
        yield f"products were rounded to {kind}", results
        if kind != dtype:
            angles = [(rounded(each.cos, kind), rounded(each.sin, kind)) for each in right]
            pairs = zip(right, angles, strict=True)
            yield f"cos and sin were rounded to {kind}", [each.with_angles(*both).value() for each, both in pairs]
            yield f"q and k were rounded to {kind}", [replace(each, x=rounded(each.x, kind)).value() for each in right]
            yield f"the results were rounded to {kind}", [rounded(each.value(), kind) for each in right]
