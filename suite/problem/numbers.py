"""Random numbers for families of inputs: for one operand, and for several that depend on each other.

The numbers avoid results that depend on a rounding: sums of subnormal numbers are exact in float32, and for tf32
products the extremes are those of tf32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch

from suite.numerics.formats import DOUBLE, MAX_FINITE, MIN_EXPONENT, SIGNIFICANT_BITS
from suite.problem.case import Case
from suite.problem.shape import Shape

Numbers: TypeAlias = "Callable[[Shape, Case, torch.Generator], torch.Tensor]"
"""Draws one operand, dense and row-major, in the case's dtype."""
Values: TypeAlias = "Callable[[tuple[Shape, ...], Case, torch.Generator], tuple[torch.Tensor, ...]]"
"""Draws all operands."""

DEVIATION = {"float8_e4m3fn": 64.0}
"""Standard deviation of normal numbers where it is not 1. The largest float8 is 7 deviations, and few are subnormal."""


# One operand


def normals(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, drawn in the working type and rounded once to the case's dtype."""
    drawn = torch.randn(shape, generator=source, device=source.device, dtype=working_type(case))
    if case.dtype in DEVIATION:
        drawn = drawn.mul_(DEVIATION[case.dtype]).clamp_(-MAX_FINITE[case.dtype], MAX_FINITE[case.dtype])
    return drawn.to(dtype_of(case))


def subnormals(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Multiples of the smallest subnormal number, over the whole subnormal range of either sign."""
    bits, exponent = _format(case)
    drawn = torch.randint(1 - 2**bits, 2**bits, shape, generator=source, device=source.device)
    return (drawn.double() * 2.0 ** (exponent - bits)).to(dtype_of(case))


def small_integers(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Integers from -3 to 3: their products with multiples of a number are exact multiples of it."""
    return torch.randint(-3, 4, shape, generator=source, device=source.device).to(dtype_of(case))


def extremes(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Extreme numbers of either sign among normal ones: the largest, half of it, its last place, and half of that.

    Sums of two are finite, infinite, or halfway between the largest number and infinity, where both are right.
    """
    most = MAX_FINITE[DOUBLE] if case.dtype == DOUBLE else largest(case)
    last_place = 2.0 ** (math.frexp(most)[1] - 1 - _format(case)[0])
    choices = [most, most / 2, last_place, last_place / 2]
    signed = torch.tensor([sign * x for x in choices for sign in (1.0, -1.0)], dtype=torch.float64)
    drawn = _choose(signed.to(source.device), shape, source)
    plain = torch.randn(shape, generator=source, device=source.device).double()
    return torch.where(_with_probability(0.75, shape, source), drawn, plain).to(dtype_of(case))


def signed_zeros(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Zeros of either sign among 1 and -1."""
    return _choose(torch.tensor([0.0, -0.0, 1.0, -1.0], device=source.device), shape, source).to(dtype_of(case))


def some_infinite(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, a quarter of them infinite."""
    drawn = normals(shape, case, source)
    return torch.where(_with_probability(0.25, shape, source), drawn * math.inf, drawn)


def one_nan(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers with one NaN."""
    drawn = normals(shape, case, source)
    put(drawn, math.nan, tuple(index_below(size, source) for size in shape))
    return drawn


def peaks(size: float) -> Numbers:
    """Normal numbers, but one of `size` at the end of even rows and at the start of odd ones.

    If any other number of a long row is left out, a result in 16 bits hardly changes.
    """

    def values(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
        drawn = normals(shape, case, source)
        if drawn.numel():
            drawn[0::2, -1] = drawn[1::2, 0] = size
        return drawn

    return values


# Several operands


def per_operand(*numbers: Numbers) -> Values:
    """Draw each operand by its own function; the last function also draws all further operands."""

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        return tuple(numbers[min(i, len(numbers) - 1)](shape, case, source) for i, shape in enumerate(shapes))

    return values


def opposite(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Draw a, and b nearly -a: they differ by a few units in the last place, so their sum is exact and nearly
    cancels."""
    a = normals(shapes[0], case, source)
    relative = 2.0 ** (1 - SIGNIFICANT_BITS[case.dtype])
    steps = torch.randint(-3, 4, shapes[1], generator=source, device=source.device)
    return a, (-a.double() * (1.0 + steps * relative)).to(a.dtype)


def spread(*powers: int, values: Values | None = None) -> Values:
    """Draw by `values`, or normal numbers, and multiply each operand by two to its power, the last ones by 1.

    In float16 a quarter of the powers keeps the numbers in range.
    """
    drawn = values or per_operand(normals)

    def scaled(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        part = 0.25 if case.dtype == "float16" else 1.0
        factors = [2.0 ** (power * part) for power in powers] + [1.0] * (len(shapes) - len(powers))
        return tuple(
            (each.double() * factor).to(each.dtype)
            for each, factor in zip(drawn(shapes, case, source), factors, strict=True)
        )

    return scaled


# For operations that draw numbers of their own


def dtype_of(case: Case) -> torch.dtype:
    dtype = getattr(torch, case.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def working_type(case: Case) -> torch.dtype:
    """Return the type to draw numbers in: float64 has digits that float32 numbers lack."""
    return torch.float64 if case.dtype == DOUBLE else torch.float32


def largest(case: Case) -> float:
    """Return the largest finite number of the case's precision; that of tf32 if inputs are rounded to tf32.

    For float64 it is the largest whose squares, which error bounds need, can be added in float64.
    """
    if case.dtype == DOUBLE:
        return 2.0**490
    return (2.0 - 2.0**-10) * 2.0**127 if case.precision == "tf32" else MAX_FINITE[case.dtype]


def with_signs(operand: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Give each number a random sign."""
    return torch.where(_with_probability(0.5, tuple(operand.shape), source), -operand, operand)


def put(operand: torch.Tensor, value: float, index: tuple[int, ...]) -> None:
    """Set operand[index] to a value, unless the operand is empty."""
    if operand.numel():
        operand[index] = value


def index_below(size: int, source: torch.Generator) -> int:
    """Return a random index of a dimension of `size`; 0 if it is empty."""
    return int(torch.randint(max(size, 1), (), generator=source, device=source.device))


def _format(case: Case) -> tuple[int, int]:
    """Return the bits of the significand after the first, and the exponent of the smallest normal number."""
    return SIGNIFICANT_BITS["tf32" if case.precision == "tf32" else case.dtype] - 1, MIN_EXPONENT[case.dtype]


def _with_probability(probability: float, shape: Shape, source: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=source, device=source.device) < probability


def _choose(choices: torch.Tensor, shape: Shape, source: torch.Generator) -> torch.Tensor:
    return choices[torch.randint(len(choices), shape, generator=source, device=source.device)]
