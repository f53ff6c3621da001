"""layer_norm: each row of an (M, N) matrix minus its mean, over its deviation; a weight and a bias per column."""

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

EPS = 1e-5
"""PyTorch's default."""
OTHER_EPS = 0.0625
"""The argument of the family that passes another one."""
FACTORS = (3.0 + 2.0) / 2.0 + RSQRT_ULPS * 2.0 + 3.0
"""Largest error of one sign of all factors, in units of u: squares, division and eps by half, root, the rest."""


def layer_norm_limit(
    x: torch.Tensor,
    centered: torch.Tensor,
    scale: torch.Tensor,
    weight: torch.Tensor,
    value: torch.Tensor,
    count: int,
    dtype: str,
) -> torch.Tensor:
    """Return the bound for y_j = (x_j - mean) scale w_j + b_j with scale = 1 / sqrt(variance + eps).

    x, value and centered (x - mean): (rows, N); scale: (rows, 1); weight: (N,); all float64.

    1. The error of the mean is that of a sum of N numbers over N, and of the division.
    2. The variance is the sum of the squared differences. Its relative error has 3u from each square, the roundings of
       a sum of positive numbers, u each from the division and the sum with eps, and the square of the mean's error. The
       root halves that, and adds RSQRT_ULPS. E[x^2] - mean^2 would add cancellation, which the bound excludes.
    3. The difference has the mean's error and a rounding; two products and a sum follow.
    """
    u, sigmas = unit_roundoff(working(dtype)), deviations(count)
    mean_variance, squares_variance = row_variances(x, centered, dtype)
    mean_error = mean_variance.sqrt() * sigmas + x.mean(dim=1, keepdim=True).abs() * u
    relative = (squares_variance.sqrt() * sigmas + (mean_error * scale).square()) / 2.0 + FACTORS * u
    factor = scale * weight.abs()
    error = centered.abs() * factor * relative + factor * mean_error + value.abs() * u
    return limit(error + half_smallest(working(dtype)) * (factor + weight.abs() + 1.0), value, dtype)


def row_variances(x: torch.Tensor, centered: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the variance of each row's mean, and the relative one of its sum of squared differences; (rows, 1)."""
    n = x.shape[1]
    sums = x.sum(dim=1, keepdim=True)
    of_x = x.square().sum(dim=1, keepdim=True)
    mean_variance = sum_variance(sums, of_x, longest_chain(n), None, repeats(x), dtype) / n**2
    squares = centered.square()
    total = squares.sum(dim=1, keepdim=True)
    spread = squares.square().sum(dim=1, keepdim=True) / total.square().clamp(min=2.0**-1000)
    ones = torch.ones_like(spread)
    return mean_variance, sum_variance(ones, spread, longest_chain(n), None, repeats(squares), dtype)


def layer_norm_noise(
    x: torch.Tensor,
    centered: torch.Tensor,
    scale: torch.Tensor,
    weight: torch.Tensor,
    value: torch.Tensor,
    rows: int,
    dtype: str,
) -> Noise:
    """Return the noise of the results: those of a row have the errors of one mean and of one variance."""
    at = sample(tuple(value.shape), value.device)
    u, row = unit_roundoff(working(dtype)), at[0]
    mean_variance, squares_variance = (each[row, 0] for each in row_variances(x, centered, dtype))
    shift = x.mean(dim=1)[row].abs() * u
    factor = scale[row, 0] * weight[at[1]].abs()
    size = centered[at].abs() * factor
    relative = (mean_variance + shift.square()) * scale[row, 0].square() / 2.0 + FACTORS * u
    systematic = size * relative + factor * shift + value[at].abs() * u
    systematic += half_smallest(working(dtype)) * (factor + weight[at[1]].abs() + 1.0)
    return Noise(systematic, size.square() * squares_variance / 4.0 + factor.square() * mean_variance, rows)


def shifted(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers plus 64 in rows that differ: the variance is far below the mean square."""
    rows = torch.arange(shape[0], device=source.device) % 4
    drawn = numbers.normals(shape, case, source).double() * (2.0 ** (-1.0 * rows))[:, None]
    return (drawn + 64.0 + 16.0 * rows[:, None]).to(numbers.dtype_of(case))


def constant(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """One number per row: the variance is 0."""
    drawn = numbers.normals((shape[0], 1), case, source)
    return (drawn * 8.0).expand(shape).contiguous()


def small(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers with deviation 2^-8, whose variance is near eps."""
    return numbers.normals(shape, case, source) * 2.0**-8


class LayerNorm(Operation):
    rank = 37
    group = "rows"
    name = "layer_norm"
    formula = "y[i, j] = (x[i, j] - mean_i) / sqrt(variance_i + eps) * weight[j] + bias[j]"
    dtypes_beyond = (DOUBLE,)
    dims = ("M", "N")
    is_square = True
    sweep = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling = (TellingCase("long_row", (2, 16_408)), TellingCase("longest_row", (1, 65_793), first=False))
    large = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged = ((1, 1), (5, 257), (2, 4104))
    weights = (1, 2)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "long_thin": family.long_thin((1, 70_003), (515, 3)),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views((9, 136)),
        "offset": family.offset((9, 136)),
        "broadcast": family.broadcast((9, 136)),
        "infinity": family.infinity((9, 136), values=numbers.per_operand(numbers.some_infinite, numbers.normals)),
        "nan": family.nan((9, 136), values=numbers.per_operand(numbers.one_nan, numbers.normals)),
        "small": Family(
            "variances of the size of eps", numbers.per_operand(small, numbers.normals), shapes=((9, 136),)
        ),
        "range": family.spread((9, 136), 20, -20, -20),
        "shifted": Family(
            "means of 64 and more: E[x^2] - E[x]^2 cancels",
            numbers.per_operand(shifted, numbers.normals),
            shapes=((9, 136), (2, 4104)),
        ),
        "constant": Family(
            "rows of one number: a variance of 0", numbers.per_operand(constant, numbers.normals), shapes=((9, 136),)
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
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 2^27 bfloat16 elements in rows of 2 KB to 256 KB, more than an SM holds; then other types."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        cases = [self.case((2**27 // n, n), "bfloat16") for n in (1024, 4096, 32768, 131072)]
        return [*cases, self.case((4096, 32768), "float16"), self.case((16384, 4096), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, (case["N"],), (case["N"],))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"eps": EPS, **self.family(case.inputs).arguments}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of whole rows."""
        m, n = case.shape
        together = rows_per_block(n, share=2)
        weight, bias = (each.double() for each in inputs[1:])
        eps = self.arguments(case)["eps"]
        for start in range(0, m if n else 0, together):
            rows = slice(start, min(start + together, m))
            x = inputs[0][rows].double()
            centered = x - x.mean(dim=1, keepdim=True)
            scale = centered.square().mean(dim=1, keepdim=True).add_(eps).rsqrt_()
            value = centered * scale * weight + bias
            bound = layer_norm_limit(x, centered, scale, weight, value, m * n, case.dtype)
            noise = layer_norm_noise(x, centered, scale, weight, value, m, case.dtype)
            del x, centered
            yield Truth((rows, slice(0, n)), value, bound, noise)
            del value, bound

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        """Count a sum, difference, square, sum, two products and a sum for each element."""
        return 7 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        """Count twelve float64 arrays of one block of rows, and the vectors."""
        m, n = case.shape
        return 8 * 12 * min(m, rows_per_block(n, share=2)) * n + 8 * 5 * n


OP = LayerNorm()
