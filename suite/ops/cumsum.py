"""cumsum: each number of a row becomes the sum of all numbers up to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics.bounds import CHAIN, deviations, limit
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats
from suite.ops.sum import cancelling, large_numbers, positive
from suite.problem import family, numbers
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (9, 264)
"""Shape of most families: no multiple of a tile."""


def longest_chains(terms: torch.Tensor) -> torch.Tensor:
    """Return `bounds.longest_chain` of each number of terms."""
    return torch.minimum(terms, (2.0 * terms.sqrt().floor()).clamp(min=CHAIN))


def prefix_variance(value: torch.Tensor, squares: torch.Tensor, repeated: torch.Tensor) -> torch.Tensor:
    """Return the variance of the error of each prefix sum in float32, added in any order by chains of good length.

    It is `bounds.sum_variance` with another number of terms in each column. value, squares: prefix sums of the numbers
    and of their squares, (rows, N), float64. repeated: how many numbers of each row are equal, (rows, 1).
    """
    u, n = unit_roundoff("float32"), value.shape[1]
    chain = longest_chains(torch.arange(1, n + 1, dtype=torch.float64, device=value.device))
    many = torch.minimum(repeated, chain)
    variance = squares * many * (chain * (u**2 / 3.0))
    variance += value.square().mul_(chain * (u**2 / 9.0))
    variance += (squares > 0) * (chain * (half_smallest("float32") ** 2 / 3.0))
    return variance.mul_(many)


def prefix_limit(
    value: torch.Tensor, squares: torch.Tensor, variance: torch.Tensor, count: int, dtype: str
) -> torch.Tensor:
    """Return the bound of prefix sums: their probable error, or the worst case, which is smaller for few terms."""
    terms = torch.arange(1, value.shape[1] + 1, dtype=torch.float64, device=value.device)
    worst = (squares * terms).sqrt_().mul_((longest_chains(terms) - 1.0) * unit_roundoff("float32"))
    return limit(torch.minimum(variance.sqrt().mul_(deviations(count)), worst), value, dtype)


def equal(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """One number in each row, from 1/2 to 3/2: the roundings of its multiples do not cancel."""
    return positive((shape[0], 1), case, source).expand(shape).contiguous()


class Cumsum(Operation):
    rank = 66
    group = "rows"
    name = "cumsum"
    formula = "y[i, j] = sum over k <= j of x[i, k]"
    dims = ("M", "N")
    is_square = True
    sweep = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling = (TellingCase("longest_row", (1, 65_793), first=False),)
    large = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged = ((1, 1), (5, 257), (2, 4104))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 30_008)),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "broadcast": family.broadcast(ODD),
        "subnormal": family.subnormal(ODD),
        "largest": family.large(ODD, values=numbers.per_operand(large_numbers)),
        "infinity": family.infinity(ODD),
        "nan": family.nan(ODD),
        "cancellation": family.cancellation(ODD, values=numbers.per_operand(cancelling)),
        "positive": Family(
            "numbers of one sign: a sum in 16 bits stops growing", numbers.per_operand(positive), shapes=((9, 2056),)
        ),
        "equal": Family("one number in all places of a row", numbers.per_operand(equal), shapes=((3, 2056),)),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 2^26 elements as rows of a few thousand, of a vocabulary and of a million; other types."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        cases = [self.case(shape, "bfloat16") for shape in ((16384, 4096), (2048, 32768), (512, 128_256), (64, 2**20))]
        return [*cases, self.case((16384, 4096), "float16"), self.case((16384, 4096), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,)

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of whole rows. The prefix sums of a row share errors: each row counts as one of them."""
        m, n = case.shape
        together = rows_per_block(n)
        for start in range(0, m if n else 0, together):
            rows = slice(start, min(start + together, m))
            x = inputs[0][rows].double()
            value, squares = x.cumsum(dim=1), x.square().cumsum(dim=1)
            variance = prefix_variance(value, squares, repeats(x))
            del x
            at = sample(tuple(value.shape), value.device)
            noise = Noise(torch.zeros_like(variance[at]), variance[at], m)
            bound = prefix_limit(value, squares, variance, m * n, case.dtype)
            del squares, variance
            yield Truth((rows, slice(0, n)), value, bound, noise)
            del value, bound

    def flops(self, case: Case) -> int:
        """Count one addition for each element."""
        return case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count seven float64 arrays of a block of rows, and four of a row."""
        m, n = case.shape
        return 8 * 7 * min(m, rows_per_block(n)) * n + 8 * 4 * n


OP = Cumsum()
