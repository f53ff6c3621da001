"""softmax: y_j = exp(x_j) / sum_k exp(x_k) for each row of an (M, N) matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics.bounds import EXP_ULPS, deviations, limit, longest_chain, sum_variance
from suite.numerics.formats import DOUBLE, DTYPES, MIN_EXPONENT, SIGNIFICANT_BITS, half_smallest, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats
from suite.problem import family, numbers, placement
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


def softmax_limit(x: torch.Tensor, value: torch.Tensor, count: int, dtype: str) -> torch.Tensor:
    """Return the bound for y_j = exp(x_j - max) / sum_k exp(x_k - max). x and value: (rows, N), float64.

    An exponential has the error of its argument, which is as large as x_j - max, and EXP_ULPS. The denominator has the
    errors of its terms, weighted by y, and those of the sum; the quotient may be a product with a reciprocal.
    """
    kind = working(dtype)
    u = unit_roundoff(kind)
    relative = distances(x).add_(EXP_ULPS).mul_(2.0 * u)
    common = (value * relative).sum(dim=1, keepdim=True) + 2.0 * u
    common += denominator_variance(value, dtype).sqrt() * deviations(count)
    error = relative.add_(common).mul_(value).add_(EXP_ULPS * 2.0 * half_smallest(kind))
    return limit(error, value, dtype)


def distances(x: torch.Tensor) -> torch.Tensor:
    """Return the distance of each number from the largest of its row; 0 where that is infinite, since y is 0."""
    return (x.amax(dim=1, keepdim=True) - x).nan_to_num_(0.0, 0.0, 0.0)


def denominator_variance(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the relative variance of each row's sum of exponentials, (rows, 1). value: the results."""
    squares = value.square().sum(dim=1, keepdim=True)
    return sum_variance(torch.ones_like(squares), squares, longest_chain(value.shape[1]), None, repeats(value), dtype)


def softmax_noise(x: torch.Tensor, value: torch.Tensor, rows: int, dtype: str) -> Noise:
    """Return the noise of softmax: all results of a row have the error of one denominator.

    The constant log2(e) is rounded, the same for all: a factor on a result's distance beyond the mean distance of its
    row. The difference and its product with the constant are rounded too, each on its own.
    """
    at, kind = sample(tuple(value.shape), value.device), working(dtype)
    u = unit_roundoff(kind)
    distance = distances(x)
    mean = (value * distance).sum(dim=1)[at[0]]
    size, distance = value[at], distance[at]
    systematic = size * u * ((distance - mean).abs() + EXP_ULPS * 2.0 + 2.0) + EXP_ULPS * 2.0 * half_smallest(kind)
    variance = denominator_variance(value, dtype)[at[0], 0]
    return Noise(systematic, size.square() * (variance + distance.square() * (2.0 * u**2 / 3.0)), rows)


def small_results(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers from 0 down to where results are subnormal, or round to 0."""
    smallest = MIN_EXPONENT[case.dtype] - SIGNIFICANT_BITS[case.dtype] - 1
    drawn = torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)
    return (drawn * (smallest * math.log(2.0))).to(numbers.dtype_of(case))


def shifted(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers with deviation 4, plus 1000 or -1000 in alternate rows.

    Exponentials overflow, or are all 0, unless the maximum of the row itself is subtracted.
    """
    sign = 1.0 - 2.0 * (torch.arange(shape[0], device=source.device) % 2)
    return (numbers.normals(shape, case, source).double() * 4.0 + 1000.0 * sign[:, None]).to(numbers.dtype_of(case))


def far_below(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers around -57344: their exponentials are 0 unless the maximum of the row itself is subtracted."""
    spread = max(8.0, 57344.0 * 2.0 * unit_roundoff(case.dtype))  # some neighbours of the type
    return (numbers.normals(shape, case, source).double() * spread - 57344.0).to(numbers.dtype_of(case))


def minus_infinity(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, but minus infinity in the first half of row 0, the second half of row 1, and all of row 2."""
    drawn = numbers.normals(shape, case, source)
    half = shape[1] // 2
    for row, columns in enumerate((slice(0, half), slice(half, None), slice(None))[: shape[0]]):
        drawn[row, columns] = -math.inf
    return drawn


class Softmax(Operation):
    rank = 35
    group = "rows"
    name = "softmax"
    formula = "y[i, j] = exp(x[i, j]) / sum over k of exp(x[i, k])"
    dtypes_beyond = (DOUBLE,)
    dims = ("M", "N")
    is_square = True
    sweep = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling = (TellingCase("longest_row", (1, 65_793), first=False),)
    telling_left_out = ("infinity@0",)  # at plus infinity exp(x - max) is NaN everywhere, exp(x - logsumexp) only there
    large = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged = ((1, 1), (5, 257), (33, 64), (2, 4104))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 70_003), (515, 3)),
        "empty": family.empty((0, 5), (5, 0)),
        "transposed": Family("stored by columns", family.NORMALS, placement.transposed, shapes=((9, 136),)),
        "strided": family.strided_views((9, 136)),
        "offset": family.offset((9, 136)),
        "misaligned_rows": family.misaligned_rows((9, 136)),
        "broadcast": family.broadcast((9, 136)),
        "subnormal": family.subnormal((9, 136), values=numbers.per_operand(small_results)),
        "largest": family.large((9, 136)),
        "signed_zero": family.signed_zero((9, 136)),
        "infinity": family.infinity((9, 136), values=numbers.per_operand(minus_infinity)),
        "nan": family.nan((9, 136)),
        "shifted": Family(
            "rows around 1000 and -1000: exponentials overflow or vanish unless the maximum is subtracted",
            numbers.per_operand(shifted),
            shapes=((9, 136), (2, 4104)),
        ),
        "below": Family("rows far below 0", numbers.per_operand(far_below), shapes=((9, 136),)),
        "peaks": Family(
            "long rows, and a number at one end that outweighs all others",
            numbers.per_operand(numbers.peaks(12.0)),
            shapes=((2, 16_408),),
        ),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 2^27 bfloat16 elements in rows of 2 KB to 256 KB, more than an SM holds; then other types."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        cases = [self.case((2**27 // n, n), "bfloat16") for n in (1024, 4096, 32768, 131072)]
        return [*cases, self.case((4096, 32768), "float16"), self.case((16384, 4096), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of whole rows."""
        m, n = case.shape
        together = rows_per_block(n)
        for start in range(0, m if n else 0, together):
            rows = slice(start, min(start + together, m))
            x = inputs[0][rows].double()
            value = torch.softmax(x, dim=1)
            bound, noise = softmax_limit(x, value, m * n, case.dtype), softmax_noise(x, value, m, case.dtype)
            del x
            yield Truth((rows, slice(0, n)), value, bound, noise)
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        """Count one each for comparison, subtraction, exponential, sum and division."""
        return 5 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count ten float64 arrays of one block of rows."""
        m, n = case.shape
        return 8 * 10 * min(m, rows_per_block(n)) * n


OP = Softmax()
