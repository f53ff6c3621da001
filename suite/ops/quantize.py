"""quantize: the numbers of a row, of 128 columns or of a block of 128 x 128 as codes of 8 bits times one scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from suite.core.integers import cdiv
from suite.numerics.bounds import MARGIN, limit
from suite.numerics.formats import DTYPES, is_integer, ulp, unit_roundoff
from suite.problem import family, numbers, outputs
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}
"""The largest code of each type: the code of the largest number of a group."""
LEAST_SCALE = 2.0**-126
"""The smallest normal number of float32: the scale of a group of zeros, and of numbers so small that their own scale
would be subnormal."""
GROUP = 128
DIVISION_ROUNDINGS = 4.0
"""Largest error of a quotient in float32, in unit roundoffs (PTX ISA: div.full.f32 has 2 ulps)."""
QUOTIENT_ROUNDINGS = 2.0 * DIVISION_ROUNDINGS + 1.0
"""Largest relative error of x / scale before it is rounded to a code: of the scale, of its reciprocal, of the product.
"""
BEYOND_A_CODE = 0.25
"""Distance between a bound and the last code within it, in steps between codes: no further code is within."""
ODD = (9, 264)
"""Shape of most families: the last group is a part of one."""


def group_of(group: str, n: int) -> tuple[int, int]:
    """Return the rows and columns of a group."""
    return {"row": (1, max(n, 1)), "128": (1, GROUP), "128x128": (GROUP, GROUP)}[group]


def scales_shape(case: Case) -> Shape:
    """Return the number of groups along each axis."""
    rows, columns = group_of(str(case.option("group", "row")), case["N"])
    return (cdiv(case["M"], rows), cdiv(case["N"], columns))


def largest_of_groups(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Return the largest |x| of each group of a matrix; NaN is larger than all numbers."""
    m, n = x.shape
    padded = torch.nn.functional.pad(x.abs(), (0, -n % columns, 0, -m % rows))
    return padded.view(cdiv(m, rows), rows, cdiv(n, columns), columns).amax(dim=(1, 3))


def spread_over_groups(scales: torch.Tensor, shape: tuple[int, ...], rows: int, columns: int) -> torch.Tensor:
    """Return the scale of each element of a matrix of this shape."""
    m, n = shape
    return scales.repeat_interleave(rows, 0)[:m].repeat_interleave(columns, 1)[:, :n]


def scales_of(largest: torch.Tensor, to: str) -> torch.Tensor:
    return (largest / LARGEST[to]).clamp(min=LEAST_SCALE)  # keeps NaN


def codes_truth(
    quotient: torch.Tensor, to: str, before: torch.Tensor | float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the code of each exact quotient, and its bound. before: the quotient's error from before the division.

    A code is exact, with a bound of 0, unless the quotient is so near the middle between two codes that the errors of
    the scale, or errors before these, decide between codes. The value is then the middle of the codes within reach, and
    the bound includes these codes. An integer has no NaN: its code is 0.
    """
    quotient = quotient.nan_to_num(0.0) if is_integer(to) else quotient
    error = (quotient.abs() * (QUOTIENT_ROUNDINGS * unit_roundoff("float32")) + before) * MARGIN
    error.nan_to_num_(0.0, posinf=0.0)
    low, high = nearest_code(quotient - error, to), nearest_code(quotient + error, to)
    bound = (high - low) / 2.0 + ulp(quotient, to) * BEYOND_A_CODE
    return (low + high) / 2.0, bound.where(high > low, 0.0)


def nearest_code(quotient: torch.Tensor, to: str) -> torch.Tensor:
    step = ulp(quotient, to)
    return (quotient / step).round_().mul_(step).clamp_(-LARGEST[to], LARGEST[to])


def scales_limit(scales: torch.Tensor, before: torch.Tensor | float = 0.0) -> torch.Tensor:
    """Return the bound of the scales: a quotient in float32, or a product with a rounded reciprocal.

    before: the error of the scales from before the division.
    """
    return limit(scales * (DIVISION_ROUNDINGS * unit_roundoff("float32")) + before, scales, "float32")


def error_of_largest(numbers: torch.Tensor, error: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Return the largest error of each group's largest |x|, from the error of each number."""
    sizes = numbers.abs()
    largest, most, least = (
        largest_of_groups(each, rows, columns) for each in (sizes, sizes + error, (sizes - error).clamp_(min=0.0))
    )
    return (most - largest).maximum(largest - least).nan_to_num_(0.0, posinf=0.0)


def uneven(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers times powers of two that differ from row to row and from column to column."""
    drawn = numbers.normals(shape, case, source)
    rows, columns = (torch.randint(-6, 3, (size,), generator=source, device=source.device) for size in shape)
    return (drawn.double() * torch.exp2((rows[:, None] + columns).double())).to(drawn.dtype)


def zero_rows(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers; every second row, and the first 128 columns, are zeros."""
    drawn = numbers.normals(shape, case, source)
    drawn[::2] = 0.0
    drawn[:, :GROUP] = 0.0
    return drawn


def equal(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """1.5 and -1.5."""
    signs = torch.randint(0, 2, shape, generator=source, device=source.device) * 2 - 1
    return (signs * 1.5).to(numbers.dtype_of(case))


class Quantize(Operation):
    rank = 63
    group = "rows"
    name = "quantize"
    formula = "scale = max |x| / 448 over a group; code = x / scale, to the nearest float8_e4m3fn (int8: 127)"
    dims = ("M", "N")
    is_square = True
    outputs = ("codes", "scales")
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "group", ("row", "128", "128x128"), "elements with one scale: a row, 128 columns of it, 128 x 128", True
        ),
        Option("to", ("float8_e4m3fn", "int8"), "type of the codes"),
    )
    sweep = tuple((1024, 2**k) for k in range(6, 17, 2))
    telling = (
        TellingCase("longest_row", (1, 65_793), first=False),
        TellingCase("many_groups", (2, 8585), options={"group": "128"}, first=False),
    )
    large = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged = ((1, 1), (5, 257), (131, 130))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "int8": Family("codes of int8", family.NORMALS, shapes=(ODD,), options={"to": ("int8",)}),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "uneven": Family(
            "rows and columns of very different sizes, which expose the scale of another group",
            numbers.per_operand(uneven),
            shapes=((137, 264),),
            options={"to": ("float8_e4m3fn", "int8")},
        ),
        "zero_groups": Family("groups of zeros: their codes are 0", numbers.per_operand(zero_rows), shapes=(ODD,)),
        "equal": Family("equal sizes: every code is the largest", numbers.per_operand(equal), shapes=(ODD,)),
        "subnormal": family.subnormal(ODD),
        "largest": family.large(ODD),
        "infinity": family.infinity(ODD),
        "nan": family.nan(ODD),
        "nan_int8": Family(
            "int8: codes of a group with a NaN are 0", numbers.per_operand(numbers.one_nan), shapes=(ODD,),
            options={"to": ("int8",)},
        ),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }  # fmt: skip

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 16384 tokens of models with 4096, 7168 and 14336 features in each group; other types."""
        groups = self.options[0].values
        if device_type != "cuda":
            return [self.case((50, 264), dtype, group=group) for dtype, group in zip(DTYPES, groups, strict=True)]
        cases = [self.case((16384, n), "bfloat16", group=group) for n in (4096, 7168, 14336) for group in groups]
        cases.append(self.case((16384, 4096), "bfloat16", to="int8"))
        return [*cases, self.case((16384, 4096), "float16"), self.case((16384, 4096), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,)

    def arguments(self, case: Case) -> dict[str, Any]:
        return self.option_values(case)

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, scales_shape(case))

    def output_dtypes(self, case: Case) -> tuple[str, ...]:
        return (str(self.option_values(case)["to"]), "float32")

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def output_dtype(self, case: Case) -> str:
        return outputs.joined_dtype(self.output_dtypes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of whole groups of codes and their scales in turn."""
        (m, n), to = case.shape, self.output_dtypes(case)[0]
        rows, columns = group_of(self.option_values(case)["group"], n)
        together, begin, of_row = self._rows_together(case), m * n, cdiv(n, columns)
        for start in range(0, m if n else 0, together):
            block, error = self.numbers(inputs, case, slice(start, min(start + together, m)))
            scales = scales_of(largest_of_groups(block, rows, columns), to)
            divisor = spread_over_groups(scales, block.shape, rows, columns)
            of_scales: torch.Tensor | float = 0.0
            if isinstance(error, torch.Tensor):
                of_scales = error_of_largest(block, error, rows, columns).div_(LARGEST[to])
                error = error.add_(spread_over_groups(of_scales, block.shape, rows, columns) * (block / divisor).abs_())
                error /= divisor
            block /= divisor
            del divisor
            value, bound = codes_truth(block, to, error)
            del block, error
            yield Truth((slice(start * n, start * n + value.numel()),), value.reshape(-1), bound.reshape(-1), dtype=to)
            del value, bound
            flat, first = scales.reshape(-1), begin + start // rows * of_row
            limits = scales_limit(scales, of_scales).reshape(-1)
            yield Truth((slice(first, first + flat.numel()),), flat, limits, dtype="float32")

    def numbers(
        self, inputs: tuple[torch.Tensor, ...], case: Case, rows: slice
    ) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Return the numbers of these rows that become codes, float64, and the largest error of each in float32."""
        return inputs[0][rows].double(), 0.0

    def _rows_together(self, case: Case) -> int:
        """Return the number of rows that are judged at a time: whole groups."""
        rows, _ = group_of(self.option_values(case)["group"], case["N"])
        return max(1, rows_per_block(case["N"]) // rows) * rows

    def flops(self, case: Case) -> int:
        """Count a comparison, a product and a rounding for each element."""
        return 3 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count eight float64 arrays of a block of codes, or four while its last groups are padded."""
        m, n = case.shape
        rows, columns = group_of(self.option_values(case)["group"], n)
        block = min(m, self._rows_together(case))
        padded = cdiv(block, rows) * rows * cdiv(n, columns) * columns
        return 8 * max(8 * block * n, 2 * block * n + 2 * padded)


OP = Quantize()
