"""Variants of sum: elements that are left out or counted twice, other digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch

from suite import ops
from suite.ops.sum import sum_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, count_were, shortened_lengths, spans
from suite.variants._rounding import coarser_formats, rounded, sixteen_bit_formats

MAX_ELEMENTS = 2**20
"""Largest number of elements of an input; every variant sums all of them again."""
MAX_STEPS = 1024
"""Largest number of additions of a simulated sum."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    x = inputs[0]
    if x.numel() > MAX_ELEMENTS:
        return
    axis = ops.get("sum").arguments(case)["axis"]
    whole = x.double()
    count = max(1, 1 if axis is None else x.shape[1 - axis])

    def variant(mistake: str, y: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Variant:
        over = (0, 1) if axis is None else (axis,)
        value, squares = y.sum(dim=over), y.square().sum(dim=over)
        value = value if change is None else change(value)
        return Variant(mistake, value[part], sum_limit(value, squares, y.numel() // count, count, case.dtype)[part])

    yield variant("magnitudes were added", whole.abs())
    yield variant("squares were added", whole.square())
    yield variant("NaN was left out", whole.nan_to_num(0.0, torch.inf, -torch.inf))
    yield variant("infinities were replaced by 0", torch.where(whole.isinf(), 0.0, whole))
    yield variant("NaN and infinities were replaced by 0", whole.nan_to_num(0.0, 0.0, 0.0))
    for name, length in (("rows", x.shape[0]), ("columns", x.shape[1]), ("elements", x.numel())):
        if length > 1:
            yield variant(f"the sum was divided by the number of {name}", whole, partial(torch.div, other=length))
    for across, name in ((0, "row"), (1, "column")):
        if axis in (None, across) and x.shape[across] > 1:
            yield from _parts(whole, across, name, variant)
    for kind in coarser_formats(case.dtype):
        small = rounded(whole, kind)
        yield variant(f"elements were rounded to {kind}", small)
        yield variant(f"elements and the sum were rounded to {kind}", small, partial(rounded, kind=kind))
    if axis is not None:
        yield from _in_steps(whole if axis == 1 else whole.mT, case, count, part)


def _parts(x: torch.Tensor, across: int, name: str, variant: Callable[..., Variant]) -> Iterator[Variant]:
    """Rows or columns that are left out, or counted twice."""
    length = x.shape[across]
    for kept in shortened_lengths(length):
        left = count_were(length - kept, name)
        yield variant(f"the last {left} left out", x.narrow(across, 0, kept))
        yield variant(f"the first {left} left out", x.narrow(across, length - kept, kept))
    for place in range(length) if length <= SIZES[5] else ():
        yield variant(f"{name} {place} was counted twice", torch.cat((x, x.narrow(across, place, 1)), dim=across))


def _in_steps(rows: torch.Tensor, case: Case, count: int, part: Part) -> Iterator[Variant]:
    """Sums of rows that are rounded after each block."""
    squares = rows.square().sum(dim=1)
    for kind, size in product(sixteen_bit_formats(case.dtype), SIZES):
        if not size < rows.shape[1] <= size * MAX_STEPS:
            continue
        acc, exact = torch.zeros_like(rows[:, 0]), torch.zeros_like(rows[:, 0])
        for span in spans(rows.shape[1], size):
            block = rows[:, span].sum(dim=1)
            acc, exact = rounded(acc + rounded(block, kind), kind), rounded(exact + block, kind)
        every = "each element" if size == 1 else f"every {size} elements"
        for value in (acc, exact):
            bound = sum_limit(value, squares, rows.shape[1], count, case.dtype)
            yield Variant(f"the sum so far was rounded to {kind} after {every}", value[part], bound[part])
