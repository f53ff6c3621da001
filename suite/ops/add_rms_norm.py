"""add_rms_norm: a residual is added, and each row of the sum is divided by its root mean square, times a weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import deviations, limit, rounding_limit
from suite.numerics.formats import DTYPES, unit_roundoff
from suite.numerics.noise import Noise, sample
from suite.ops.rms_norm import EPS, FACTORS, OTHER_EPS, smallest_errors, squares_variance
from suite.problem import family, numbers, outputs
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (9, 136)
"""Shape of most families: no multiple of a tile."""


def sum_roundings(r: torch.Tensor, sigmas: float, dtype: str) -> torch.Tensor:
    """Return the largest relative error of a root mean square whose numbers were rounded to `dtype`, (rows, 1).

    A rounding changes a square by 2u, and the root halves the change of their mean. Roundings of many numbers cancel.
    """
    u = unit_roundoff(dtype)
    squares = r.square()
    total = squares.sum(dim=1, keepdim=True).square().clamp(min=2.0**-1000)
    spread = (squares.square().sum(dim=1, keepdim=True) / total).nan_to_num_(1.0)  # infinite squares
    return (spread.sqrt() * (sigmas / 3.0**0.5)).clamp(max=1.0) * u


def add_rms_norm_limit(
    r: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, value: torch.Tensor, count: int, dtype: str
) -> torch.Tensor:
    """Return the bound of y = r scale w, where r is the sum before or after its rounding to `dtype`.

    r and value: (rows, N), weight: (N,), scale: (rows, 1), float64. Beside the errors of rms_norm: r may be rounded,
    as it is stored, and so may the numbers of the mean square.
    """
    sigmas, u = deviations(count), unit_roundoff(dtype)
    relative = squares_variance(r, dtype).sqrt() * (sigmas / 2.0) + FACTORS * unit_roundoff("float32") + u
    relative = relative + sum_roundings(r, sigmas, dtype)
    return limit(value.abs() * relative + smallest_errors(weight, scale, dtype), value, dtype)


def add_rms_norm_noise(
    r: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, value: torch.Tensor, dtype: str, rows: int
) -> Noise:
    """Return the noise of the results: those of a row have the error of one root mean square."""
    at = sample(tuple(value.shape), value.device)
    size, u = value[at].abs(), unit_roundoff(dtype)
    systematic = size * (FACTORS * unit_roundoff("float32")) + smallest_errors(weight[at[1]], scale[at[0], 0], dtype)
    of_row = squares_variance(r, dtype)[at[0], 0] / 4.0 + sum_roundings(r, 1.0, dtype)[at[0], 0].square()
    return Noise(systematic, size.square() * (of_row + u**2 / 3.0), rows)


def infinities(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw infinities in a quarter of x in even rows, and of the residual in odd rows."""
    x, residual, weight = (numbers.normals(shape, case, source) for shape in shapes)
    infinite = numbers.some_infinite(shapes[0], case, source)
    x[::2], residual[1::2] = infinite[::2], infinite[1::2]
    return x, residual, weight


class AddRmsNorm(Operation):
    rank = 38
    group = "rows"
    name = "add_rms_norm"
    formula = "r[i, j] = x[i, j] + residual[i, j]; y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps)"
    dims = ("M", "N")
    is_square = True
    outputs = ("y", "r")
    sweep = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling = (TellingCase("longest_row", (1, 65_793), first=False),)
    telling_left_out = ("subnormal@", "infinity_odd", "infinity@0", "infinity@1")  # infinities: see rms_norm
    large = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged = ((1, 1), (5, 257), (2, 4104))
    weights = (2,)
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "infinity": family.infinity(ODD, values=infinities),
        "nan": family.nan(ODD, values=numbers.per_operand(numbers.one_nan, numbers.normals)),
        "range": family.spread(ODD, 20, 18, -20),
        "eps": Family(f"eps={OTHER_EPS} instead of {EPS}", family.NORMALS, shapes=(ODD,), arguments={"eps": OTHER_EPS}),
        "peaks": Family(
            "long rows, and a number at one end that outweighs all others",
            numbers.per_operand(numbers.peaks(256.0), numbers.normals),
            shapes=((2, 16_408),),
        ),
        "huge": family.huge((2**16 + 1, 2**15 + 8)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 16384 tokens of models with 4096 and 8192 features; a long row; then other types."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        cases = [self.case(shape, "bfloat16") for shape in ((16384, 4096), (16384, 8192), (2048, 65536))]
        return [*cases, self.case((16384, 4096), "float16"), self.case((16384, 4096), "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape, (case["N"],))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"eps": EPS, **self.family(case.inputs).arguments}

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, case.shape)

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield blocks of whole rows of y and of r in turn."""
        m, n = case.shape
        together = rows_per_block(n)
        weight, eps = inputs[2].double(), self.arguments(case)["eps"]
        for start in range(0, m if n else 0, together):
            rows = slice(start, min(start + together, m))
            r = inputs[0][rows].double() + inputs[1][rows].double()
            scale = r.square().mean(dim=1, keepdim=True).add_(eps).rsqrt_()
            value = r * scale * weight
            bound = add_rms_norm_limit(r, weight, scale, value, m * n, case.dtype)
            noise = add_rms_norm_noise(r, weight, scale, value, case.dtype, m)
            yield Truth((slice(start * n, rows.stop * n),), value.reshape(-1), bound.reshape(-1), noise)
            del value, bound
            flat = r.reshape(-1)
            del r
            yield Truth((slice((m + start) * n, (m + rows.stop) * n),), flat, rounding_limit(flat, case.dtype))

    def flops(self, case: Case) -> int:
        """Count a sum, a square, a sum and two products for each element."""
        return 5 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        m, n = case.shape
        return 8 * 11 * min(m, rows_per_block(n)) * n + 8 * 3 * n


OP = AddRmsNorm()
