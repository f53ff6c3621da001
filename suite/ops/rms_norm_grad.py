"""rms_norm_grad: the gradients of rms_norm's matrix and weight, from the gradient of its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import deviations, limit, longest_chain, sum_variance
from suite.numerics.formats import DTYPES, half_smallest, unit_roundoff
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats
from suite.ops.rms_norm import EPS, FACTORS, OTHER_EPS, rows_of_scales, squares_variance
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


@dataclass
class Normed:
    """Normed rows xhat = (x - mean) scale and their errors, float64. The mean is 0 in rms_norm."""

    xhat: torch.Tensor
    scale: torch.Tensor
    """(rows, 1), as all of the following."""
    variance: torch.Tensor
    """The relative variance of the scale."""
    factors: float
    """The largest relative error of one sign of the scale and the products with it."""
    mean_variance: torch.Tensor | float = 0.0
    """The variance of the mean."""
    mean_shift: torch.Tensor | float = 0.0
    """The largest error of one sign of the mean, and of the difference from it."""
    mean: torch.Tensor | float = 0.0
    """The mean times the scale: xhat + mean is x times the scale."""


@dataclass
class RowGradient:
    """The gradient of some rows: dx = scale (g - a - xhat b), g = dy w, a and b the means of g and of g xhat; float64.

    a is 0 in rms_norm.
    """

    value: torch.Tensor
    shift: torch.Tensor
    """The largest error of one sign."""
    variance: torch.Tensor
    """The variance of the other errors; those of a row are common to its results."""


def row_gradient(rows: Normed, g: torch.Tensor, *, centered: bool) -> RowGradient:
    """Compute the gradient of some rows with its errors.

    1. g is rounded. b is a mean of products, each with four roundings, and has the error of the scale; a is a mean.
    2. The error of the scale changes scale (g - a) once, and scale xhat b three times: kernels multiply x by scale^3.
    3. The mean's error moves xhat by itself times the scale, and so b by that times a.
    4. Three roundings of each term follow.
    5. As the mean of x itself has an error of u |mean|, kernels may leave out the mean until the end: b is the mean of
       g x minus that of g times the mean, and xhat b is x b minus the mean times b.
    """
    u, n, xhat, scale = unit_roundoff("float32"), g.shape[1], rows.xhat, rows.scale
    b, b_variance = _mean(g * xhat, 4.0 * u)
    a, a_variance = _mean(g, u) if centered else (torch.zeros_like(b), torch.zeros_like(b))
    first, second = (g - a).abs(), xhat * b
    value = (g - a - second) * scale
    rounded = 2.0 * second.abs_()
    if centered:
        x, mean = xhat + rows.mean, torch.as_tensor(rows.mean)
        of_x = _mean(g * x, 4.0 * u)[1] + (a_variance + (3.0 * u * a) ** 2) * mean**2
        b_variance, rounded = b_variance.maximum(of_x), rounded.maximum((x.abs_() + mean.abs()) * b.abs())
    moved = (rows.mean_variance + rows.mean_shift**2) ** 0.5 * scale if centered else 0.0
    shift = (first + 3.0 * second) * (rows.factors * u) + (g.abs() + 2.0 * a.abs() + rounded) * (3.0 * u)
    shift = (shift + half_smallest("float32") * n) * scale + half_smallest("float32")
    variance = (first + 3.0 * second).square() * rows.variance + xhat.square() * b_variance + a_variance
    variance += (b.square() + (xhat * a).square()) * moved**2
    return RowGradient(value, shift, variance * scale.square())


def _mean(terms: torch.Tensor, rounding: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean of each row and its variance, with a relative rounding of each term; (rows, 1)."""
    n = max(terms.shape[1], 1)
    total, squares = terms.sum(dim=1, keepdim=True), terms.square().sum(dim=1, keepdim=True)
    variance = sum_variance(total, squares, longest_chain(n), None, repeats(terms)) + squares * (rounding**2 / 3.0)
    return total / n, variance / n**2


@dataclass
class ColumnSum:
    """A sum over rows, with the terms of its bound; (N,) each, float64."""

    value: torch.Tensor
    squares: torch.Tensor
    variance: torch.Tensor
    shift: torch.Tensor
    repeats: torch.Tensor
    """How many terms are equal (`suite/numerics/repeats.py`)."""

    def add(self, terms: torch.Tensor, variance: torch.Tensor | float, shift: torch.Tensor | float, rows: int) -> None:
        """Add terms, (rows, N), with the variances and the largest errors of one sign of each; `rows`: of the sum."""
        self.value += terms.sum(0)
        self.squares += terms.square().sum(0)
        self.variance += variance.sum(0) if isinstance(variance, torch.Tensor) else variance
        self.shift += shift.sum(0) if isinstance(shift, torch.Tensor) else shift
        self.repeats = torch.maximum(self.repeats, repeats(terms.T, rows)[:, 0])

    def truth(self, begin: int, rows: int, count: int, dtype: str) -> Truth:
        """Return the truth of the sum of `rows` rows, which begins at `begin` in the joined results."""
        of_sum = sum_variance(self.value, self.squares, longest_chain(rows), None, self.repeats)
        variance = self.variance + of_sum
        bound = limit(self.shift + variance.sqrt() * deviations(count), self.value, dtype)
        at = sample(tuple(self.value.shape), self.value.device)
        noise = Noise(self.shift[at], variance[at], len(self.value))
        return Truth((slice(begin, begin + len(bound)),), self.value, bound, noise)


def empty_sum(columns: int, device: torch.device) -> ColumnSum:
    value, squares, variance, shift = (torch.zeros(columns, dtype=torch.float64, device=device) for _ in range(4))
    return ColumnSum(value, squares, variance, shift, torch.ones_like(value))


class RmsNormGrad(Operation):
    rank = 39
    group = "rows"
    name = "rms_norm_grad"
    formula = (
        "dX = s (G - Xhat mean(G Xhat)), dW = sum over rows of dY Xhat, where s = 1 / sqrt(mean(X^2) + eps), "
        "Xhat = X s, G = dY W"
    )
    dims = ("M", "N")
    is_square = True
    outputs: tuple[str, ...] = ("dx", "dweight")
    sweep = tuple((1024, 2**k) for k in range(6, 19, 2))
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("many_rows", (5_003, 24)),
        TellingCase("longest_row", (1, 65_793), first=False),
    )
    telling_left_out: tuple[str, ...] = ("subnormal@", "infinity@0")  # infinity@0: see rms_norm
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (16, 131_072)),
        TellingCase("many_rows", (70_001, 3)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 1), (5, 257), (2, 4104))
    weights = (1,)
    centered: ClassVar[bool] = False
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0, 5), (5, 0)),
        "strided": family.strided_views(ODD),
        "offset": family.offset(ODD),
        "nan": family.nan(ODD, values=numbers.per_operand(numbers.one_nan, numbers.normals)),
        "range": family.spread(ODD, 20, -20, 20),
        "small": Family(
            "mean squares of the size of eps, and rows that differ in size",
            numbers.per_operand(lambda *drawn: rows_of_scales(*drawn) * 2.0**-7, numbers.normals),
            shapes=(ODD,),
        ),
        "eps": Family(f"eps={OTHER_EPS} instead of {EPS}", family.NORMALS, shapes=(ODD,), arguments={"eps": OTHER_EPS}),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: 16384 tokens of models with 4096 and 8192 features, heads of 128; then other types."""
        if device_type != "cuda":
            return [self.case((50, 264), dtype) for dtype in DTYPES]
        shapes = ((16384, 4096), (16384, 8192), (262_144, 128))
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        return [*cases, self.case(shapes[0], "float16"), self.case(shapes[0], "float32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, (case["N"],), case.shape)

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"eps": EPS, **self.family(case.inputs).arguments}

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape, (case["N"],))

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def normed(self, x: torch.Tensor, eps: float, dtype: str) -> Normed:
        """Norm some rows, float64; the errors are those of `rms_norm_limit`."""
        scale = x.square().mean(dim=1, keepdim=True).add_(eps).rsqrt_()
        return Normed(x * scale, scale, squares_variance(x, dtype) / 4.0, FACTORS)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield dx in blocks of rows, then dweight, and dbias if there is one, which are sums over the blocks."""
        m, n = case.shape
        count, u = self.output_shape(case)[0], unit_roundoff("float32")
        weight, eps = inputs[1].double(), self.arguments(case)["eps"]
        sums = [empty_sum(n, weight.device) for _ in self.outputs[1:]]
        together = rows_per_block(n)
        for start in range(0, m if n else 0, together):
            x, dy = (each[start : start + together].double() for each in (inputs[0], inputs[2]))
            rows = self.normed(x, eps, case.dtype)
            del x
            terms = dy * rows.xhat
            variance = terms.square() * (rows.variance + 3.0 * u**2)
            shift = terms.abs() * (rows.factors * u)
            if self.centered:
                variance += (dy * rows.scale).square() * rows.mean_variance
                shift += (dy * rows.scale).abs() * rows.mean_shift
            sums[0].add(terms, variance, shift, m)
            del terms, variance, shift
            if self.centered:
                sums[1].add(dy, 0.0, 0.0, m)
            found = row_gradient(rows, dy.mul_(weight), centered=self.centered)
            del rows, dy
            yield self._rows(found, start * n, count, case)
            del found
        begins = outputs.starts(self.output_shapes(case))[1:]
        for begin, total in zip(begins, sums, strict=True):
            yield total.truth(begin, m, count, case.dtype)

    def _rows(self, found: RowGradient, begin: int, count: int, case: Case) -> Truth:
        value, shift, variance = (each.reshape(-1) for each in (found.value, found.shift, found.variance))
        bound = limit(shift + variance.sqrt() * deviations(count), value, case.dtype)
        at = sample((len(value),), value.device)
        noise = Noise(shift[at], variance[at], case["M"])
        return Truth((slice(begin, begin + len(value)),), value, bound, noise)

    def flops(self, case: Case) -> int:
        """Count for each element: a square and a sum, two products and a sum for b, four for dx, two for dweight."""
        return 11 * case["M"] * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        m, n = case.shape
        return 8 * 15 * min(m, rows_per_block(n)) * n + 8 * 14 * n


OP = RmsNormGrad()
