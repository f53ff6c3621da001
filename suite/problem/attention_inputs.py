"""Inputs of attention and its gradient, in the families that an operation of its own kind has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from suite.numerics.float8 import FLOAT8
from suite.problem import numbers, specials
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.shape import Shape

BLIND = ("minus_infinity_all", "minus_infinity_first_causal_odd")
"""Telling cases with a query that sees only keys with a score of minus infinity: libraries give 0, which is not NaN."""


def stored_bshd(operand: torch.Tensor, position: int) -> torch.Tensor:
    """Store (B, H, S, D) in memory as (B, S, H, D), as a projection leaves it."""
    return operand.transpose(1, 2).contiguous().transpose(1, 2)


def large_scores(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """Normal numbers with deviation 16: scores reach 1000, and exp overflows unless their maximum is subtracted.

    float8 numbers stay as they are; their scales are 16 times as large.
    """
    drawn = numbers.normals(shape, case, source)
    return drawn if case.dtype == FLOAT8 else drawn * 16.0


def large_values(shape: Shape, case: Case, source: torch.Generator) -> torch.Tensor:
    """The largest number with either sign, divided by the number of keys if the sum of all would overflow float32."""
    room = 1.0 if case.dtype == "float16" else 2.0 ** math.ceil(math.log2(max(case["S_k"], 1)))
    sign = torch.randint(0, 2, shape, generator=source, device=source.device) * 2.0 - 1.0
    return (sign.double() * (numbers.largest(case) / room)).to(getattr(torch, case.dtype))


def single_element(value: float, *among: int) -> numbers.Values:
    """Normal numbers with one `value` in each batch entry, in rotation over the operands `among` (0 q, 1 k, 2 v).

    It lies in the second half of the keys or queries, so that a causal mask hides it from some queries only.
    """

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        drawn = tuple(numbers.normals(shape, case, source) for shape in shapes)
        first = numbers.index_below(len(among), source)
        for batch in range(case["B"]):
            operand = drawn[among[(first + batch) % len(among)]]
            _, heads, rows, d = operand.shape
            row = rows - 1 - numbers.index_below(rows // 2, source)
            head, feature = numbers.index_below(heads, source), numbers.index_below(d, source)
            numbers.put(operand, value, (batch, head, row, feature))
        return drawn

    return values


def minus_infinity(keys: Callable[[int], slice], *, overflow: bool) -> numbers.Values:
    """Normal numbers; in every third key head the keys `keys(S_k)` score minus infinity for all queries.

    One feature of the queries is above 16, and the same feature of these keys is minus infinity. With `overflow` the
    next head holds the lowest finite number there: scores overflow float32, or are far below the others in float16.
    A third head shows what a kernel does without them.
    """

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        q, k, v = (numbers.normals(shape, case, source) for shape in shapes)
        q[..., :1] = q[..., :1].abs() + 16.0
        k[:, ::3, keys(k.shape[2]), :1] = -math.inf
        if overflow:
            k[:, 1::3, keys(k.shape[2]), :1] = -numbers.largest(case)
        return q, k, v

    return values


def far_below(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Normal numbers, but 896 in one feature of the queries and -896 in that of the keys: scores near -10^5."""
    q, k, v = (numbers.normals(shape, case, source) for shape in shapes)
    q[..., :1], k[..., :1] = 896.0, -896.0
    return q, k, v


def pairs_that_cancel(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """The second half of the keys repeats the first, with values of opposite sign."""
    q, k, v = (numbers.normals(shape, case, source) for shape in shapes)
    half = k.shape[2] // 2
    k[:, :, k.shape[2] - half :] = k[:, :, :half]
    v[:, :, v.shape[2] - half :] = -v[:, :, :half]
    return q, k, v


def shifted(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Normal numbers plus terms that leave the probabilities unchanged and show roundings to 16 bits.

    Queries have mean 8, and features of a key come in pairs m + n, m - n: all scores of a row are larger by 16, and
    their terms largely cancel. Half the features of V have mean 1.5, which averaging over keys keeps.
    """
    q, k, v = (numbers.normals(shape, case, source).to(numbers.working_type(case)) for shape in shapes)
    d = q.shape[-1]
    half = k[..., : (d + 1) // 2]
    pairs = torch.stack((half, -half), -1).flatten(-2)[..., :d]
    v[..., d // 2 :] += 1.5
    return tuple(x.to(getattr(torch, case.dtype)) for x in (q + 8.0, pairs + 2.0 / math.sqrt(max(d, 1)), v))


def append_normal_gradient(values: numbers.Values) -> numbers.Values:
    """Draw q, k and v by `values`, and do as normal numbers."""

    def with_gradient(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (*values(shapes[:3], case, source), numbers.normals(shapes[3], case, source))

    return with_gradient


def infinite_gradient(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Normal numbers without a negative v, and two infinities in do.

    All do v^T of their query are infinite with one sign, or NaN: so is their sum, in any order, and ds is NaN.
    """
    q, k, v, do = specials.values("infinity@3", numbers.per_operand(numbers.normals))(shapes, case, source)
    return q, k, v.abs(), do


def one_nan(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Normal numbers with one NaN in each batch entry, in q, k, v and do in rotation.

    It is in the last query's row or in that of the first key, which every query sees: the affected results are the same
    whether hidden pairs are left out of sums or weighted by 0.
    """
    drawn = tuple(numbers.normals(shape, case, source) for shape in shapes)
    first = numbers.index_below(len(drawn), source)
    for batch in range(case["B"]):
        position = (first + batch) % len(drawn)
        _, heads, rows, d = drawn[position].shape
        row = rows - 1 if position in (0, 3) else 0
        at = (batch, numbers.index_below(heads, source), row, numbers.index_below(d, source))
        numbers.put(drawn[position], math.nan, at)
    return drawn


def add_float8(families: dict[str, Family]) -> dict[str, Family]:
    """Add float8 to the dtypes of the families that it can represent. It has no infinity."""
    without = ("subnormal", "largest", "infinity", "huge", "cancellation", "shifted", "below", "range")
    return {
        name: family if name in without or "infinity" in name else replace(family, dtypes=(*family.dtypes, FLOAT8))
        for name, family in families.items()
    }
