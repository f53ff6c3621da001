"""sigmoid: y = 1 / (1 + exp(-x)); kernels take any shape, cases are vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch

from suite.numerics.bounds import EXP_ULPS, limit
from suite.numerics.formats import DOUBLE, DTYPES, MIN_EXPONENT, SIGNIFICANT_BITS, half_smallest, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.problem import family, numbers
from suite.problem.blocks import block_bytes, blocks
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth


def sigmoid_limit(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the bound for y = 1 / (1 + exp(-x)) in the working type of `dtype`. value: y, float64.

    The exponential has an error of EXP_ULPS, each at most 2u of its value, or of the spacing of subnormal numbers; the
    relative change of y is (1 - y) times that. The sum adds u. A reciprocal of one ulp is within the
    margin: its errors are at most 0.9 of the bound.
    """
    return limit(sigmoid_error(value, dtype), value, dtype)


def sigmoid_error(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the largest error of y before its rounding to the output's type."""
    kind = working(dtype)
    u = unit_roundoff(kind)
    return value * ((1.0 - value) * (EXP_ULPS * 2.0 * u) + u) + EXP_ULPS * 2.0 * half_smallest(kind)


def sigmoid_noise(value: torch.Tensor, dtype: str) -> Noise:
    """Return the noise of the sigmoid. All errors may have one sign: those of an exponential function are its own."""
    sampled = value[sample(tuple(value.shape), value.device)]
    errors = sigmoid_error(sampled, dtype) + sampled * unit_roundoff(working(dtype))  # a reciprocal of one ulp
    return Noise(errors, torch.zeros_like(errors), len(errors))


def small_results(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Half subnormal numbers, whose sigmoid is 1/2; half numbers whose sigmoid is subnormal, or just above or below."""
    normal = MIN_EXPONENT[case.dtype]
    smallest = normal - SIGNIFICANT_BITS[case.dtype]
    drawn = torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)
    low = (smallest - 1 + (normal - smallest + 2) * drawn) * math.log(2.0)
    x = numbers.subnormals(shape, case, source)
    return torch.where(torch.rand(shape, generator=source, device=source.device) < 0.5, low.to(x.dtype), x)


def large_magnitudes(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Half the largest numbers, half from 110 to 220, of either sign: exponentials overflow, sigmoids are 0 or 1."""
    drawn = 220.0 * torch.rand(shape, generator=source, device=source.device) - 110.0
    x = numbers.extremes(shape, case, source)
    drawn = (drawn + 110.0 * drawn.sign()).to(x.dtype)
    return torch.where(torch.rand(shape, generator=source, device=source.device) < 0.5, drawn, x)


def whole_range(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Numbers from the logarithm of the smallest normal number up to 16, where the sigmoid is nearly 1."""
    low = MIN_EXPONENT[case.dtype] * math.log(2.0)
    drawn = torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)
    return (low + 1.0 + drawn * (15.0 - low)).to(numbers.dtype_of(case))


class Sigmoid(Operation):
    rank = 30
    group = "elementwise"
    name = "sigmoid"
    formula = "y[i] = 1 / (1 + exp(-x[i]))"
    dtypes_beyond = (DOUBLE,)
    dims = ("N",)
    is_square = True
    sweep = tuple((2**k,) for k in range(10, 29, 3))
    telling = (TellingCase("tail", (65_793,)),)
    telling_left_out = ("subnormal", "subnormal@")
    large = (TellingCase("large", (2**21 + 5,), "range"),)
    ragged = ((1,), (31,), (1023,), (1025,), (10_007,))
    families: ClassVar = {
        "normal": family.normal(),
        "sizes": family.sizes(*ragged),
        "empty": family.empty((0,)),
        "strided": family.strided_views((1,), (1025,)),
        "offset": family.offset((1,), (4097,)),
        "broadcast": family.broadcast((1025,)),
        "subnormal": family.subnormal((1025,), values=numbers.per_operand(small_results)),
        "largest": family.large((1025,), values=numbers.per_operand(large_magnitudes)),
        "range": Family(
            "results from the smallest normal number to 1, each exponent as often",
            numbers.per_operand(whole_range),
            shapes=((1025,),),
        ),
        "signed_zero": family.signed_zero((1025,)),
        "infinity": family.infinity((1025,)),
        "nan": family.nan((1025,)),
        "huge": family.huge((2**31 + 17,)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        sizes = (2**20, 2**28) if device_type == "cuda" else (100_003,)
        return [self.case((n,), dtype) for n in sizes for dtype in DTYPES]

    def operands(self, case: Case) -> tuple[Shape, ...]:
        return (case.shape,)

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        (x,) = inputs
        for index in blocks(case.shape):
            value = torch.sigmoid(x[index].double())
            yield Truth(index, value, sigmoid_limit(value, case.dtype), sigmoid_noise(value, case.dtype))

    def output_shape(self, case: Case) -> Shape:
        return case.shape

    def flops(self, case: Case) -> int:
        """Count one each for negation, exponential, sum and division."""
        return 4 * case["N"]

    def workspace_bytes(self, case: Case) -> int:
        return block_bytes(case.shape)


OP = Sigmoid()
