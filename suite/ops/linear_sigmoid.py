"""linear_sigmoid: y = sigma(x W^T + b), a linear layer with a sigmoid; x (M, K), W (N, K), b (N,)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from suite.numerics.bounds import deviations, limit
from suite.numerics.formats import DOUBLE, DTYPES, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.numerics.repeats import repeats_of_products
from suite.ops.matmul import product_error
from suite.ops.sigmoid import sigmoid_error
from suite.problem import blocks, family, numbers
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


@dataclass
class Logits:
    """The logits z = x W^T + b and their errors; float64, (M, N) each."""

    z: torch.Tensor
    shift: torch.Tensor
    """Systematic error of the accumulation."""
    variance: torch.Tensor
    """Variance of the accumulation's random error."""
    rounding: torch.Tensor
    """Largest error of two roundings."""


def logits(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, case: Case) -> Logits:
    """Compute the logits from float64 operands, with their errors.

    Adding the bias adds a rounding. In 16 bits the product may be rounded before the bias is added, and the sum before
    the sigmoid is computed, as between the calls of a library.
    """
    product = x @ weight.T
    squares, equal = x.square() @ weight.square().T, repeats_of_products(x, weight.T)
    shift, variance = product_error(product, squares, x.shape[1], case.dtype, case.precision, equal)
    z = product + bias
    return Logits(z, shift, variance, (product.abs() + z.abs()) * unit_roundoff(case.dtype))


def linear_sigmoid_limit(z_errors: Logits, value: torch.Tensor, count: int, dtype: str) -> torch.Tensor:
    """Return the bound for y = sigma(z), one of `count`. value: y, float64.

    sigma(z + e) - sigma(z) is at most y (1 - y) (exp(|e|) - 1), for e of either sign. `sigmoid_limit` derives the error
    of the sigmoid itself.
    """
    slope = value * (1.0 - value)
    logit_error = slope * torch.expm1(z_errors.shift + z_errors.rounding + z_errors.variance.sqrt() * deviations(count))
    logit_error = torch.where(z_errors.z.isinf(), 0.0, logit_error.nan_to_num(nan=1.0, posinf=1.0).clamp(max=1.0))
    return limit(logit_error + sigmoid_error(value, dtype), value, dtype)


def linear_sigmoid_noise(z_errors: Logits, value: torch.Tensor, independent: int, dtype: str) -> Noise:
    """Return the noise of y = sigma(z). The square of an error of z has one sign; sigma'' is at most 0.1."""
    at = sample(tuple(value.shape), value.device)
    shift, rounding = z_errors.shift[at], z_errors.rounding[at]
    variance = z_errors.variance[at] + rounding.square() / 3.0
    slope = value[at] * (1.0 - value[at])
    systematic = (
        slope * shift
        + sigmoid_error(value[at], dtype)
        + value[at] * unit_roundoff(working(dtype))
        + 0.05 * (variance + shift.square())
    )
    return Noise(systematic, slope.square() * variance, independent)


def layer(weights: float = 1.0, numbers_of_x: numbers.Numbers = numbers.normals) -> numbers.Values:
    """Draw normal numbers, with weights times `weights` over sqrt(K): logits around 1, as in a trained layer."""

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        x = numbers_of_x(shapes[0], case, source)
        weight, *rest = (numbers.normals(shape, case, source) for shape in shapes[1:])
        scaled = weight.to(numbers.working_type(case)) * (weights / math.sqrt(max(shapes[0][1], 1)))
        return x, scaled.to(weight.dtype), *rest

    return values


LAYER = layer()


def bias_that_cancels(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """All rows of x are nearly the same, and the bias is nearly minus their product: logits are far smaller than both.

    The weights are so large that omitting the bias, or adding it after the sigmoid, shows.
    """
    x, weight, bias, *rest = layer(4.0)(shapes, case, source)
    x = (x[:1].double() + x.double() / 64.0).to(x.dtype)
    if x.numel() and bias.numel():
        bias = (bias.double() / 4.0 - (x[:1].double() @ weight.double().T)[0]).to(bias.dtype)
    return x, weight, bias, *rest


def one_nan_in_turn(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """One NaN. Its operand depends on the dtype: the weight for float16, the bias for bfloat16, else x."""
    drawn = LAYER(shapes, case, source)
    operand = drawn[{"float16": 1, "bfloat16": 2}.get(case.dtype, 0)]
    numbers.put(operand, math.nan, tuple(numbers.index_below(size, source) for size in operand.shape))
    return drawn


def infinite_bias(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Infinities in a quarter of the bias: results of 0 and 1."""
    x, weight, bias, *rest = LAYER(shapes, case, source)
    infinite = torch.rand(bias.shape, generator=source, device=source.device) < 0.25
    return x, weight, torch.where(infinite, bias * math.inf, bias), *rest


def layer_family(plain: Family) -> Family:
    """Return the family with the numbers of a layer."""
    return replace(plain, values=LAYER)


ODD = (33, 65, 34)


class LinearSigmoid(Operation):
    rank = 42
    group = "products"
    name = "linear_sigmoid"
    formula = "Y[i, j] = 1 / (1 + exp(-(sum over k of X[i, k] W[j, k] + b[j])))"
    dtypes_beyond = (DOUBLE,)
    dims = ("M", "N", "K")
    is_square = True
    sweep = tuple((n, n, n) for n in (64, 256, 1024, 2048, 4096, 8192))
    telling: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("many_rows", (1040, 16, 67)),
        TellingCase("many_columns", (1, 65_793, 2), first=False),
        TellingCase("long_k", (48, 40, 2056)),
    )
    large: ClassVar[tuple[TellingCase, ...]] = (
        TellingCase("large", (40, 72, 16_392)),
        TellingCase("many_rows", (70_001, 9, 8)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((1, 1, 1), (5, 4, 0), (70, 41, 33))
    weights = (1, 2)
    families: ClassVar[dict[str, Family]] = {
        "normal": Family("normal numbers, weights over sqrt(K); the operation's default sizes", LAYER),
        "sizes": layer_family(family.sizes(*ragged)),
        "empty": layer_family(family.empty((0, 4, 3), (3, 0, 4))),
        "strided": layer_family(family.strided_views(ODD)),
        "misaligned_rows": layer_family(family.misaligned_rows((33, 64, 64))),
        "bias_cancels": Family(
            "a bias that nearly cancels the product", bias_that_cancels, shapes=(ODD, (33, 65, 257))
        ),
        "range": family.spread(ODD, 20, -20, values=LAYER),
        "saturated": Family("logits of either sign up to 60: results next to 0 and 1", layer(15.0), shapes=(ODD,)),
        "infinity": family.infinity(ODD, values=infinite_bias),
        "nan": family.nan(ODD, values=one_nan_in_turn),
        "huge": layer_family(family.huge((2**16 + 1, 2**15 + 1, 16))),
    }

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return ("ieee", "tf32") if dtype == "float32" else ("ieee",)

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: squares, a layer of a transformer with many rows and with few, and the other types."""
        if device_type != "cuda":
            return [self.case((50, 72, 40), dtype) for dtype in DTYPES]
        shapes = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 14336, 4096), (16, 14336, 4096))
        cases = [self.case(shape, "bfloat16") for shape in shapes]
        return [*cases, self.case(shapes[0], "float16"), self.case((2048, 2048, 2048), "float32", "tf32")]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        m, n, k = case.shape
        return ((m, k), (n, k), (n,))

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"precision": case.precision}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        m, n, k = case.shape
        for rows, columns in blocks.blocks((m, n)):
            z_errors = logits(inputs[0][rows].double(), inputs[1][columns].double(), inputs[2][columns].double(), case)
            value = torch.sigmoid(z_errors.z)
            noise = linear_sigmoid_noise(z_errors, value, min(m * n, m * k, n * k), case.dtype)
            yield Truth((rows, columns), value, linear_sigmoid_limit(z_errors, value, m * n, case.dtype), noise)

    def output_shape(self, case: Case) -> Shape:
        return (case["M"], case["N"])

    def flops(self, case: Case) -> int:
        """Count two operations for each product; for each result the bias, and four for the sigmoid."""
        return case["M"] * case["N"] * (2 * case["K"] + 5)

    def workspace_bytes(self, case: Case) -> int:
        """Count both operands of a block and their squares in float64, and twelve arrays of its results."""
        m, n, k = case.shape
        rows = min(m, blocks.rows_per_block(n))
        return 8 * (2 * (rows + n) * k + 12 * min(m * n, blocks.BLOCK_ELEMENTS))


OP = LinearSigmoid()
