"""Families of inputs, shared by the operations: how numbers are drawn, and how they lie in memory.

An operation declares its families once, by the functions at the end: `families = {"nan": f.nan((1025,)), ...}`, and the
tests and `compare --inputs nan` use that declaration. Where an operation needs numbers of its own it gives `values`.

Whatever is not an operand's own, the gaps of a strided view and the elements before and after a misaligned one, is NaN:
a kernel that reads beyond its operand shows. Where a rounding would decide what is right, a family leaves it no choice:
subnormal numbers have sums that float32 holds exactly, and with tf32 products the extremes are those of tf32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from suite.numerics.check import MAX_FINITE, MIN_EXPONENT, SIGNIFICANT_BITS
from suite.problem import generators as _draw
from suite.problem.operation import Case, Family, Shape

Values = Callable[[tuple[Shape, ...], Case, torch.Generator], tuple[torch.Tensor, ...]]
Numbers = Callable[[Shape, Case, torch.Generator], torch.Tensor]


# Numbers of one operand


def normals(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Standard normal numbers, rounded once to the case's dtype."""
    return _draw.normal(shape, case.dtype, source)


def subnormals(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Multiples of the smallest subnormal number, over the whole subnormal range of either sign."""
    bits, exponent = _kind(case)
    drawn = torch.randint(1 - 2**bits, 2**bits, shape, generator=source, device=source.device)
    return (drawn.double() * 2.0 ** (exponent - bits)).to(_dtype(case))


def small_integers(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """From -3 to 3: their products with multiples of a number are multiples of it, and exact."""
    return torch.randint(-3, 4, shape, generator=source, device=source.device).to(_dtype(case))


def extremes(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """The largest number, its half, and the half and the whole of its last place, of either sign; and normal numbers.

    Sums of two are in the range, or infinite, or the tie between the largest number and infinity, where both are right.
    """
    last_place = 2.0 ** (math.floor(math.log2(largest(case))) - _kind(case)[0])
    choices = [largest(case), largest(case) / 2, last_place, last_place / 2]
    signed = torch.tensor([sign * x for x in choices for sign in (1.0, -1.0)], dtype=torch.float64)
    drawn = _choose(signed.to(source.device), shape, source)
    plain = torch.randn(shape, generator=source, device=source.device).double()
    return torch.where(_coin(shape, source, 0.75), drawn, plain).to(_dtype(case))


def signed_zeros(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """0, -0, 1 and -1."""
    return _choose(torch.tensor([0.0, -0.0, 1.0, -1.0], device=source.device), shape, source).to(_dtype(case))


def some_infinite(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, a quarter of them infinite."""
    drawn = normals(shape, case, source)
    return torch.where(_coin(shape, source, 0.25), drawn * math.inf, drawn)


def one_nan(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers, but one is NaN."""
    drawn = normals(shape, case, source)
    put(drawn, math.nan, tuple(below(size, source) for size in shape))
    return drawn


# Numbers of several operands


def each(*numbers: Numbers) -> Values:
    """Every operand by a function of its own; the last one serves the rest too."""

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        return tuple(numbers[min(i, len(numbers) - 1)](shape, case, source) for i, shape in enumerate(shapes))

    return values


def opposite(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """a, and b = -a but for a few units in the last place: the sum is exact, and all digits but the last cancel."""
    a = normals(shapes[0], case, source)
    relative = 2.0 ** (1 - SIGNIFICANT_BITS[case.dtype])
    steps = torch.randint(-3, 4, shapes[1], generator=source, device=source.device)
    return a, (-a.double() * (1.0 + steps * relative)).to(a.dtype)


# Places in memory


def strided(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Of vectors every second, third ... element. Else, by position: rows with a gap after each; every second row and
    third column; every second row.
    """
    if operand.ndim == 1:
        steps, gap = [position + 2], 0
    else:
        steps, gap = [*[1] * (operand.ndim - 2), *((1, 1), (2, 3), (2, 1))[position]], 5 if position == 0 else 0
    spans = [size * step for size, step in zip(operand.shape, steps, strict=True)]
    within = tuple(slice(0, span, step) for span, step in zip(spans, steps, strict=True))
    return _amid_nans(operand, (*spans[:-1], spans[-1] + gap), within)


def misaligned(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Contiguous, and beginning one element after a multiple of 16 bytes."""
    count = operand.numel()
    flat = _amid_nans(operand.reshape(-1), (count + 2,), (slice(1, count + 1),))
    return flat.view(operand.shape)


def repeated(operand: torch.Tensor, position: int) -> torch.Tensor:
    """The first slice along the axis of the operand's own position, repeated with a stride of 0; beyond, as it is."""
    if position >= operand.ndim or operand.shape[position] == 0:
        return operand
    return operand.narrow(position, 0, 1).expand(operand.shape)


def _stored_once(shape: Shape, position: int) -> int:
    return math.prod(shape) // (max(shape[position], 1) if position < len(shape) else 1)


def heads_inside(operand: torch.Tensor, position: int) -> torch.Tensor:
    """(B, H, S, D) that lies in memory as (B, S, H, D), as a projection leaves it."""
    return operand.transpose(1, 2).contiguous().transpose(1, 2)


# Declarations


def normal() -> Family:
    return Family("random normal numbers; the operation's default sizes", each(normals))


def sizes(*shapes: Shape) -> Family:
    return Family("sizes of one, primes, one below and one above a tile", each(normals), shapes=shapes)


def long_thin(*shapes: Shape) -> Family:
    return Family("one dimension very long, another very short", each(normals), shapes=shapes)


def empty(*shapes: Shape) -> Family:
    return Family("a dimension of 0: an empty result, or zeros", each(normals), shapes=shapes)


def transposed(layouts: tuple[str, ...], *shapes: Shape) -> Family:
    return Family("each operand as it is and stored transposed", each(normals), shapes=shapes, layouts=layouts)


def strided_views(*shapes: Shape) -> Family:
    return Family("every second, third ... element of arrays of NaN", each(normals), strided, shapes=shapes)


def offset(*shapes: Shape) -> Family:
    return Family("one element off a multiple of 16 bytes", each(normals), misaligned, shapes=shapes)


def broadcast(*shapes: Shape) -> Family:
    return Family("one element, row or head repeated with a stride of 0", each(normals), repeated, _stored_once, shapes)


def subnormal(*shapes: Shape, values: Values = each(subnormals)) -> Family:  # noqa: B008
    return Family("numbers below the normal range, and results there", values, shapes=shapes)


def large(*shapes: Shape, values: Values = each(extremes)) -> Family:  # noqa: B008
    return Family("the largest finite numbers, and sums beyond them", values, shapes=shapes)


def signed_zero(*shapes: Shape) -> Family:
    return Family("0 and -0 among 1 and -1; a zero of either sign is right", each(signed_zeros), shapes=shapes)


def infinity(*shapes: Shape, values: Values = each(some_infinite)) -> Family:  # noqa: B008
    return Family("infinities; NaN where inf - inf or 0 inf is computed", values, shapes=shapes)


def nan(*shapes: Shape, values: Values = each(one_nan)) -> Family:  # noqa: B008
    return Family("NaN in one place; only what depends on it may be NaN", values, shapes=shapes)


def cancellation(*shapes: Shape, values: Values = opposite) -> Family:
    return Family("sums that are far smaller than their terms", values, shapes=shapes)


def huge(*shapes: Shape) -> Family:
    return Family(
        "more than 2^31 elements; GPU only",
        each(normals),
        shapes=shapes,
        causal=(False,),
        dtypes=("float32", "bfloat16"),
        needs_gpu=True,
    )


# Pieces


def largest(case: Case) -> float:
    """The largest finite number of the case's arithmetic; tf32's own, where inputs are rounded to that."""
    return (2.0 - 2.0**-10) * 2.0**127 if case.precision == "tf32" else MAX_FINITE[case.dtype]


def put(operand: torch.Tensor, value: float, index: tuple[int, ...]) -> None:
    """operand[index] = value, where there is such an element."""
    if operand.numel():
        operand[index] = value


def _kind(case: Case) -> tuple[int, int]:
    """Bits of the significand after the first, and the least exponent of a normal number."""
    return SIGNIFICANT_BITS["tf32" if case.precision == "tf32" else case.dtype] - 1, MIN_EXPONENT[case.dtype]


def _dtype(case: Case) -> torch.dtype:
    dtype = getattr(torch, case.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _coin(shape: Shape, source: torch.Generator, probability: float) -> torch.Tensor:
    return torch.rand(shape, generator=source, device=source.device) < probability


def _choose(choices: torch.Tensor, shape: Shape, source: torch.Generator) -> torch.Tensor:
    return choices[torch.randint(len(choices), shape, generator=source, device=source.device)]


def below(size: int, source: torch.Generator) -> int:
    """A random index of a dimension; 0 of one without any."""
    return int(torch.randint(max(size, 1), (), generator=source, device=source.device))


def _amid_nans(operand: torch.Tensor, around: Shape, within: tuple[object, ...]) -> torch.Tensor:
    view = operand.new_full(around, math.nan)[within]
    assert view.shape == operand.shape
    return view.copy_(operand)
