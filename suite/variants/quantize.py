"""Variants of quantize: another scale, other groups, another rounding of the codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from suite.numerics.formats import ulp
from suite.ops.quantize import (
    LARGEST,
    LEAST_SCALE,
    codes_truth,
    error_of_largest,
    group_of,
    largest_of_groups,
    scales_limit,
    scales_of,
    spread_over_groups,
)
from suite.problem.case import Case
from suite.problem.variant import UNKNOWN, Inputs, Part, Variant
from suite.variants._blocks import count_were, shortened_lengths
from suite.variants._rounding import rounded

MAX_ELEMENTS = 2**20
"""Largest number of elements of x; every variant computes all codes again."""
OTHER_LARGEST = (240.0, 256.0, 447.0, 448.0, 57344.0, 126.0, 127.0, 128.0)
"""Other largest codes: of float8_e4m3fnuz and float8_e5m2, of the other type, and one beside it."""
FLOORS = (1e-4, 1e-5, 1e-8, 1e-10, 1e-12)
"""Common least scales."""


@dataclass(frozen=True)
class Matrix:
    """Numbers in float64, with their groups. error: the largest error of each number before it becomes a code."""

    x: torch.Tensor
    rows: int
    columns: int
    to: str
    error: torch.Tensor | float = 0.0

    def largest(self) -> torch.Tensor:
        return largest_of_groups(self.x, self.rows, self.columns)

    def quotients(self, scales: torch.Tensor) -> torch.Tensor:
        most = LARGEST[self.to]
        return (self.x / spread_over_groups(scales, self.x.shape, self.rows, self.columns)).clamp(-most, most)

    def error_of_scales(self) -> torch.Tensor | float:
        if not isinstance(self.error, torch.Tensor):
            return 0.0
        return error_of_largest(self.x, self.error, self.rows, self.columns) / LARGEST[self.to]

    def error_of_quotients(self) -> torch.Tensor | float:
        """Return the error of x / scale from before the division."""
        if not isinstance(self.error, torch.Tensor):
            return 0.0
        scales = scales_of(self.largest(), self.to)
        relative = self.error_of_scales() / scales
        spread = partial(spread_over_groups, shape=self.x.shape, rows=self.rows, columns=self.columns)
        return self.error / spread(scales) + self.quotients(scales).abs() * spread(relative)

    def plain(self, mistake: str, part: Part) -> Variant:
        """Return the variant whose only mistake is in the numbers."""
        scales = scales_of(self.largest(), self.to)
        return self.variant(mistake, part, scales, self.quotients(scales))

    def variant(
        self, mistake: str, part: Part, scales: torch.Tensor, quotients: torch.Tensor, bound: torch.Tensor | None = None
    ) -> Variant:
        """Return the variant with these scales and unrounded codes. bound: of the scales, if it differs."""
        codes, limits = codes_truth(quotients, self.to, self.error_of_quotients())
        bound = scales_limit(scales, self.error_of_scales()) if bound is None else bound
        value, limit = (
            torch.cat([a.flatten(), b.flatten()])[part[0]] for a, b in ((codes, scales), (limits, bound))
        )  # fmt: skip
        return Variant(mistake, value, limit)


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    if inputs[0].numel() <= MAX_ELEMENTS:
        yield from code_mistakes(matrix_of(inputs[0].double(), case), case, part)


def matrix_of(x: torch.Tensor, case: Case, error: torch.Tensor | float = 0.0) -> Matrix:
    """Return the numbers with the groups of a case."""
    group, to = case.option("group", "row"), case.option("to", "float8_e4m3fn")
    return Matrix(x, *group_of(str(group), case["N"]), str(to), error)


def code_mistakes(matrix: Matrix, case: Case, part: Part) -> Iterator[Variant]:
    """Yield the mistakes in scales and in codes of right numbers."""
    right = scales_of(matrix.largest(), matrix.to)
    exact = matrix.quotients(right)
    for mistake, scales in _scales(matrix, right):
        yield matrix.variant(mistake, part, scales, matrix.quotients(scales))
    yield matrix.variant("the scales were their reciprocals", part, 1.0 / right, exact)
    for mistake, quotients in _codes(matrix, exact):
        yield matrix.variant(mistake, part, right, quotients)
    for other in ("row", "128", "128x128"):
        if other != (group := case.option("group", "row")):
            by_other = Matrix(matrix.x, *group_of(other, case["N"]), matrix.to)
            quotients = by_other.quotients(scales_of(by_other.largest(), matrix.to))
            mistake = f"the codes had the scales of the group {other}, not {group}"
            yield matrix.variant(mistake, part, right, quotients, torch.full_like(right, UNKNOWN))


def _scales(matrix: Matrix, right: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    x, largest = matrix.x, matrix.largest()
    for other in OTHER_LARGEST:
        if other != LARGEST[matrix.to]:
            yield f"the scale was the largest number over {other:g}", (largest / other).clamp(min=LEAST_SCALE)
    yield "the scale was rounded up to a power of two", right.log2().ceil().exp2()
    yield "the scale was rounded down to a power of two", right.log2().floor().exp2()
    for floor in FLOORS:
        yield f"the scale was at least {floor:g}", right.clamp(min=floor)
        yield f"the largest number counted as at least {floor:g}", scales_of(largest.clamp(min=floor), matrix.to)
    yield "the scale was that of the first group", right.flatten()[:1].expand(right.shape) if right.numel() else right
    yield "all groups had one scale", right.max().expand(right.shape) if right.numel() else right
    signed = largest_of_groups(x.clamp(min=0.0), matrix.rows, matrix.columns)
    yield "negative numbers did not count for the scale", scales_of(signed, matrix.to)
    for kind in ("bfloat16", "float16"):
        yield f"the scale was rounded to {kind}", rounded(right, kind)
    for kept in shortened_lengths(min(matrix.columns, x.shape[1])):
        inside = torch.arange(x.shape[1], device=x.device) % matrix.columns < kept
        lost = count_were(min(matrix.columns, x.shape[1]) - kept, "column")
        scales = scales_of(largest_of_groups(x * inside, matrix.rows, matrix.columns), matrix.to)
        yield f"the last {lost} missing in the scale", scales


def _codes(matrix: Matrix, exact: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    step = ulp(exact.nan_to_num(0.0), matrix.to)
    yield "the codes were truncated", (exact / step).trunc() * step
    yield "the codes were rounded down", (exact / step).floor() * step
    yield "the codes had no sign", exact.abs()
    yield "x was not divided by the scale", matrix.x.clamp(-LARGEST[matrix.to], LARGEST[matrix.to])
    for kind in ("bfloat16", "float16"):
        yield f"x / scale was rounded to {kind} first", rounded(exact, kind)
