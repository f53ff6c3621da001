"""Variants of a sum of two arrays with any number of axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import torch

from suite.numerics.bounds import rounding_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats
from suite.variants._strides import read_with_strides, row_major


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    a, b = (read_with_strides(x, x.stride(), part) for x in inputs)

    def variant(mistake: str, value: torch.Tensor) -> Variant:
        return Variant(mistake, value, rounding_limit(value, case.dtype))

    yield variant("b was left out", a)
    yield variant("a was left out", b)
    yield variant("b was subtracted", a - b)
    for kind in sixteen_bit_formats(case.dtype) if case.dtype == "float32" else ():
        small = rounded(a, kind), rounded(b, kind)
        yield variant(f"a and b were rounded to {kind}", small[0] + small[1])
        yield variant(f"a and b were added in {kind}", rounded(small[0] + small[1], kind))
    readings = [_readings(inputs, position) for position in (0, 1)]
    for (mistake_a, strides_a), (mistake_b, strides_b) in product(readings[0].items(), readings[1].items()):
        mistake = " and ".join(filter(None, (mistake_a, mistake_b)))
        if mistake:
            value = read_with_strides(inputs[0], strides_a, part) + read_with_strides(inputs[1], strides_b, part)
            yield variant(mistake, value)


def _readings(inputs: Inputs, position: int) -> Mapping[str, Sequence[int]]:
    """Return strides for reading an operand, each with its mistake; the right strides have an empty text."""
    x, other = inputs[position], inputs[1 - position]
    name, other_name = "ab"[position], "ba"[position]
    found: dict[Sequence[int], str] = {x.stride(): ""}
    if x.ndim > 1:
        found.setdefault(x.stride()[::-1], f"{name} was read transposed")
        found.setdefault((0, x.stride(1)), f"the first row of {name} was added to every row")
        found.setdefault((x.stride(0), 0), f"the first column of {name} was added to every column")
    found.setdefault(row_major(x.shape), f"{name} was read as if it was contiguous")
    found.setdefault(other.stride(), f"{name} was read with the strides of {other_name}")
    return {mistake: strides for strides, mistake in found.items()}
