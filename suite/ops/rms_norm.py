"""rms_norm: each row of an (M, N) matrix over its root mean square, times a weight for each column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import RSQRT_ULPS, deviations, limit, longest_chain, sum_variance
from suite.numerics.formats import DOUBLE, DTYPES, half_smallest, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats
from suite.problem import family, numbers
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

EPS = 1e-6
"""The value that models with this normalization use."""
OTHER_EPS = 0.0625
"""The argument of the family that passes another one."""
FACTORS = 1.0 + RSQRT_ULPS * 2.0 + 2.0
"""Largest error of one sign of all factors, in units of u: division and eps by half, the root, two products."""


def rms_norm_limit(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, value: torch.Tensor, count: int, dtype: str
) -> torch.Tensor:
    """Return the bound for y_j = x_j scale w_j with scale = 1 / sqrt(sum_k x_k^2 / N + eps)."""
    return limit(rms_norm_error(x, weight, scale, value, count, dtype), value, dtype)


def rms_norm_error(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, value: torch.Tensor, count: int, dtype: str
) -> torch.Tensor:
    """Return the largest error of y_j before it is rounded to its type.

    x and value: (rows, N), weight: (N,), scale: (rows, 1), float64. The error of the sum of squares has the roundings
    of the squares and of the sum, and u each from the division and the sum with eps. The root halves that, and adds
    RSQRT_ULPS. Two products follow, one of which may be subnormal.
    """
    relative = squares_variance(x, dtype).sqrt() * (deviations(count) / 2.0) + FACTORS * unit_roundoff(working(dtype))
    return value.abs() * relative + smallest_errors(weight, scale, dtype)


def smallest_errors(weight: torch.Tensor, scale: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the errors of products that are subnormal."""
    return half_smallest(working(dtype)) * (weight.abs() + scale + 1.0)


def squares_variance(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the relative variance of each row's sum of squares, (rows, 1)."""
    squares = x.square()
    shares = (squares / squares.sum(dim=1, keepdim=True).clamp(min=2.0**-500)).nan_to_num_()  # infinite squares
    spread = shares.square().sum(dim=1, keepdim=True)
    sums = sum_variance(torch.ones_like(spread), spread, longest_chain(x.shape[1]), None, repeats(squares), dtype)
    return sums + spread * (unit_roundoff(working(dtype)) ** 2 / 3.0)


def squares_drift(terms: int, dtype: str) -> float:
    """Return the largest systematic error of the root of a sum of squares of 16-bit numbers, in units of u.

    Squares of integers are not spread evenly modulo a power of 2, so that their roundings do not cancel. The worst is
    4: squares are 0 or 1, and an addition loses a quarter of an ulp or nothing, an eighth on average. Over a chain,
    whose sum grows evenly, that is an eighth of u for each addition. The root halves it. Squares of float32 are even
    enough.
    """
    return longest_chain(terms) / 16.0 if unit_roundoff(dtype) > unit_roundoff("float32") else 0.0


def rms_norm_noise(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, value: torch.Tensor, rows: int, dtype: str
) -> Noise:
    """Return the noise of the results: those of a row have the error of one root mean square."""
    at = sample(tuple(value.shape), value.device)
    size = value[at].abs()
    systematic = size * ((FACTORS + squares_drift(x.shape[1], dtype)) * unit_roundoff(working(dtype)))
    systematic += smallest_errors(weight[at[1]], scale[at[0], 0], dtype)
    return Noise(systematic, size.square() * squares_variance(x, dtype)[at[0], 0] / 4.0, rows)


def scaled(shift: int) -> numbers.Numbers:
    """Normal numbers times 2^shift; float16 takes a quarter of the exponent, since its range is small."""

    def values(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
        return numbers.normals(shape, case, source) * 2.0 ** (shift // 4 if case.dtype == "float16" else shift)

    return values


def rows_of_scales(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers whose rows are 1, 2^-3, 2^-6 ... times as large, so that the statistic of another row shows."""
    rows = torch.arange(shape[0], device=source.device) % 4
    return (numbers.normals(shape, case, source).double() * (2.0 ** (-3.0 * rows))[:, None]).to(numbers.dtype_of(case))


class RmsNorm(Operation):
    rank = 36
    group = "rows"
    name = "rms_norm"
    formula = "y[i, j] = x[i, j] * weight[j] / sqrt(mean over k of x[i, k]^2 + eps)"
    dtypes_beyond = (DOUBLE,)
    dims = ("M", "N")
    is_square = True
    sweep = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling = (TellingCase("longest_row", (1, 65_793), first=False),)
    telling_left_out: tuple[str, ...] = (
        "infinity_odd",
        "infinity@0",
    )  # PyTorch on a GPU: NaN in a whole row of an odd length
    large = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged = ((1, 1), (5, 257), (2, 4104))
    weights = (1,)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 70_003), (515, 3)),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views((9, 136)),
        "offset": family.offset((9, 136)),
        "broadcast": family.broadcast((9, 136)),
        "subnormal": family.subnormal((9, 136), values=numbers.per_operand(numbers.normals, numbers.subnormals)),
        "infinity": family.infinity((9, 136), values=numbers.per_operand(numbers.some_infinite, numbers.normals)),
        "nan": family.nan((9, 136), values=numbers.per_operand(numbers.one_nan, numbers.normals)),
        "small": Family(
            "mean squares of the size of eps, and rows that differ in size",
            numbers.per_operand(lambda *drawn: rows_of_scales(*drawn) * 2.0**-7, numbers.normals),
            shapes=((9, 136), (2, 4104)),
        ),
        "range": family.spread((9, 136), 20, -20),
        "large": Family(
            "numbers whose squares are large, and just in the range",
            numbers.per_operand(scaled(48), numbers.normals),
            shapes=((9, 136),),
        ),
        "nan_weights": Family(
            "NaN in one place of each weight", numbers.per_operand(numbers.normals, numbers.one_nan), shapes=((9, 136),)
        ),
        "infinite_weights": Family(
            "infinite weights", numbers.per_operand(numbers.normals, numbers.some_infinite), shapes=((9, 136),)
        ),
        "eps": Family(
            f"eps={OTHER_EPS} instead of {EPS}", family.NORMALS, shapes=((9, 136),), arguments={"eps": OTHER_EPS}
        ),
        "peaks": Family(
            "long rows, and a number at one end that outweighs all others",
            numbers.per_operand(numbers.peaks(256.0), numbers.normals),
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
        return (case.shape, (case["N"],))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"eps": EPS, **self.family(case.inputs).arguments}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of whole rows."""
        m, n = case.shape
        together = rows_per_block(n)
        weight, eps = inputs[1].double(), self.arguments(case)["eps"]
        for start in range(0, m if n else 0, together):
            rows = slice(start, min(start + together, m))
            x = inputs[0][rows].double()
            scale = x.square().mean(dim=1, keepdim=True).add_(eps).rsqrt_()
            value = x * scale * weight
            bound = rms_norm_limit(x, weight, scale, value, m * n, case.dtype)
            noise = rms_norm_noise(x, weight, scale, value, m, case.dtype)
            del x
            yield Truth((rows, slice(0, n)), value, bound, noise)
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        """Count a square, a sum and two products for each element."""
        return 4 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count ten float64 arrays of one block of rows, and the weight."""
        m, n = case.shape
        return 8 * 10 * min(m, rows_per_block(n)) * n + 8 * 3 * n


OP = RmsNorm()
