"""sum: the sum of all elements of an (M, N) matrix, of its columns or of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import deviations, largest_sum_error, limit, longest_chain, sum_variance
from suite.numerics.formats import DOUBLE, DTYPES
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats
from suite.problem import family, numbers, placement
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


def sum_limit(
    value: torch.Tensor,
    squares: torch.Tensor,
    terms: int,
    count: int,
    dtype: str,
    repeated: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the bound for sums of `terms` numbers, in any order but by chains of good length.

    squares: float64 sums of squares. repeated: how many terms of each sum are equal; None if all differ. The worst case
    is smaller for few terms, and for equal ones.
    """
    chain = longest_chain(terms)
    error = sum_variance(value, squares, chain, None, repeated, dtype).sqrt_() * deviations(count)
    return limit(torch.minimum(error, largest_sum_error(squares, terms, chain, dtype)), value, dtype)


def sum_truth(
    index: tuple[slice, ...],
    value: torch.Tensor,
    squares: torch.Tensor,
    terms: int,
    count: int,
    dtype: str,
    repeated: torch.Tensor,
) -> Truth:
    """Return the truth of sums of `terms` numbers, with their bound; see `sum_limit`."""
    at = sample(tuple(value.shape), value.device)
    variance = sum_variance(value[at], squares[at], longest_chain(terms), None, repeated[at], dtype).reshape(-1)
    noise = Noise(torch.zeros_like(variance), variance, count)
    return Truth(index, value, sum_limit(value, squares, terms, count, dtype, repeated), noise)


def equal_terms(x: torch.Tensor, axis: int | None) -> torch.Tensor:
    """Return how many terms of each sum of a matrix are equal, of the shape of the sums."""
    if axis is None:
        return repeats(x[sample(tuple(x.shape), x.device)].view(1, -1), x.numel()).view(())
    return repeats(x.mT if axis == 0 else x).view(-1)


def positive(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers from 1/2 to 3/2: partial sums grow beyond what 16 bits can count."""
    drawn = torch.rand(shape, generator=source, device=source.device, dtype=numbers.working_type(case))
    return (drawn + 0.5).to(numbers.dtype_of(case))


def cancelling(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers; the second half of the elements repeats the first with opposite sign."""
    drawn = numbers.normals(shape, case, source)
    for axis in (0, 1):
        half = shape[axis] // 2
        drawn.narrow(axis, shape[axis] - half, half).copy_(-drawn.narrow(axis, 0, half))
    return drawn


def large_numbers(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Large numbers of one sign, with no partial sum that overflows float32."""
    room = 4.0 if case.dtype == "float16" else 2.0 ** (shape[0] * shape[1]).bit_length()
    drawn = torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)
    return (drawn * (numbers.largest(case) / room)).to(numbers.dtype_of(case))


def halves(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers from 1024 to 2048, of one sign in the first half of what is summed and of the other in the second."""
    drawn = 1024.0 + 1024.0 * torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)
    axis = 1 if case.option("axis", "all") == "1" else 0
    drawn.narrow(axis, 0, shape[axis] // 2).neg_()
    return drawn.to(numbers.dtype_of(case))


class Sum(Operation):
    rank = 34
    group = "rows"
    name = "sum"
    formula = "y = sum over i and j of x[i, j]; axis 0: y[j] = sum over i; axis 1: y[i] = sum over j"
    dtypes_beyond = (DOUBLE,)
    dims = ("M", "N")
    is_square = True
    options = (
        Option("axis", ("all", "0", "1"), "sums of all elements, of each column (0) or of each row (1)", every=True),
    )
    sweep = tuple((2**k, 2**k) for k in range(6, 15, 2))
    telling = (
        TellingCase("columns", (64, 520), options={"axis": "0"}),
        TellingCase("many_columns", (3, 65_793), options={"axis": "0"}, first=False),
        TellingCase("many_rows", (65_793, 3), options={"axis": "1"}, first=False),
        TellingCase("tall", (2053, 5), options={"axis": "0"}, first=False),
        TellingCase("wide", (5, 2053), options={"axis": "1"}, first=False),
    )
    large = (
        TellingCase("large", (2051, 2049)),
        TellingCase("large_columns", (70_001, 9), options={"axis": "0"}),
    )
    ragged = ((1, 1), (5, 257))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 30_011), (1031, 3)),
        "empty": family.empty((0, 5), (5, 0)),
        "transposed": Family("stored by columns", family.NORMALS, placement.transposed, shapes=((9, 136),)),
        "strided": family.strided_views((9, 136)),
        "offset": family.offset((9, 136)),
        "broadcast": family.broadcast((9, 136)),
        "subnormal": family.subnormal((9, 136)),
        "largest": family.large((9, 136), values=numbers.per_operand(large_numbers)),
        "infinity": family.infinity((9, 136)),
        "nan": family.nan((9, 136)),
        "cancellation": family.cancellation((9, 136), values=numbers.per_operand(cancelling)),
        "positive": Family(
            "numbers of one sign: a sum in 16 bits stops growing", numbers.per_operand(positive), shapes=((64, 520),)
        ),
        "halves": Family(
            "large numbers of opposite signs in two halves: sums of parts overflow float16",
            numbers.per_operand(halves),
            shapes=((64, 264),),
        ),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 2^28 elements, along each axis in bfloat16, all in the other types; few long columns."""
        if device_type != "cuda":
            return [
                self.case((64, 264), dtype, axis=axis) for dtype, axis in zip(DTYPES, ("all", "0", "1"), strict=True)
            ]
        square = (2**14, 2**14)
        cases = [self.case(square, "bfloat16", axis=axis) for axis in ("all", "0", "1")]
        cases += [self.case(square, dtype) for dtype in ("float32", "float16")]
        return [*cases, self.case((2**20, 256), "bfloat16", axis="0")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,)

    def _axis(self, case: Case) -> int | None:
        chosen = case.option("axis", "all")
        return None if chosen == "all" else int(chosen)

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"axis": self._axis(case)}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield pieces of the sum. x is read in blocks of rows; sums over rows give pieces, others are accumulated."""
        (x,) = inputs
        m, n = case.shape
        axis = self._axis(case)
        together = rows_per_block(n)
        shape = self.output_shape(case)
        count = max(1, m if axis == 1 else n if axis == 0 else 1)
        if axis == 1:
            for start in range(0, m, together):
                piece = x[start : start + together].double()
                equal = equal_terms(piece, axis)
                value, squares = piece.sum(dim=1), piece.square().sum(dim=1)
                index = (slice(start, start + len(value)),)
                yield sum_truth(index, value, squares, n, count, case.dtype, equal)
            return
        value, squares = (torch.zeros(shape, dtype=torch.float64, device=x.device) for _ in range(2))
        over: tuple[int, ...] = (0, 1) if axis is None else (0,)
        for start in range(0, m, together):
            piece = x[start : start + together].double()
            value += piece.sum(dim=over)
            squares += piece.square().sum(dim=over)
        if value.numel() > 0:
            terms = m if axis == 0 else m * n
            whole = (slice(0, n),) * len(shape)
            yield sum_truth(whole, value, squares, terms, count, case.dtype, equal_terms(x, axis))

    def output_shape(self, case: Case) -> Shape:
        axis = self._axis(case)
        return () if axis is None else (case["N"],) if axis == 0 else (case["M"],)

    def flops(self, case: Case) -> int:
        """Count one addition for each element."""
        return case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count three float64 arrays of one block of rows, and eight of the output."""
        m, n = case.shape
        return 8 * (3 * min(m, rows_per_block(n)) * n + 8 * (m + n))


OP = Sum()
