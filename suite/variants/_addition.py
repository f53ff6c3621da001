"""Variants of a sum of two arrays, of any number of axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import torch

from suite.numerics.bounds import rounding_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._reading import as_read, row_major
from suite.variants._rounding import rounded, sixteen


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    a, b = (as_read(x, x.stride(), part) for x in inputs)

    def variant(mistake: str, value: torch.Tensor) -> Variant:
        return Variant(mistake, value, rounding_limit(value, case.dtype))

    yield variant("b was left out", a)
    yield variant("a was left out", b)
    yield variant("b was subtracted", a - b)
    for kind in sixteen(case.dtype) if case.dtype == "float32" else ():
        small = rounded(a, kind), rounded(b, kind)
        yield variant(f"a and b were rounded to {kind}", small[0] + small[1])
        yield variant(f"a and b were added in {kind}", rounded(small[0] + small[1], kind))
    ways = [_ways(inputs, position) for position in (0, 1)]
    for (of_a, strides_a), (of_b, strides_b) in product(ways[0].items(), ways[1].items()):
        mistake = " and ".join(filter(None, (of_a, of_b)))
        if mistake:
            value = as_read(inputs[0], strides_a, part) + as_read(inputs[1], strides_b, part)
            yield variant(mistake, value)


def _ways(inputs: Inputs, position: int) -> Mapping[str, Sequence[int]]:
    """Strides by which an operand may be read, each once; its own by an empty text."""
    x, other = inputs[position], inputs[1 - position]
    name, of_other = "ab"[position], "ba"[position]
    found: dict[Sequence[int], str] = {x.stride(): ""}
    if x.ndim > 1:
        found.setdefault(x.stride()[::-1], f"{name} was read transposed")
        found.setdefault((0, x.stride(1)), f"the first row of {name} was added to every row")
        found.setdefault((x.stride(0), 0), f"the first column of {name} was added to every column")
    found.setdefault(row_major(x.shape), f"{name} was read as if it was contiguous")
    found.setdefault(other.stride(), f"{name} was read with the strides of {of_other}")
    return {way: strides for strides, way in found.items()}
