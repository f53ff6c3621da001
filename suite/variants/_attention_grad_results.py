"""The results of attention_grad after a mistake: what a mistake is, and the part of the results that it changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from suite.core.integers import cdiv
from suite.numerics.attention_grad import Factors, Pairs, Sum, pairs, sum_over_keys, sums_over_queries
from suite.numerics.masks import hidden
from suite.ops.attention import window_of
from suite.problem import outputs
from suite.problem.case import Case
from suite.problem.variant import Inputs


@dataclass(frozen=True)
class Head:
    """A query head with its key head, float64. hidden: (queries, keys), None without a mask."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor
    hidden: torch.Tensor | None
    scale: float

    @property
    def scores(self) -> torch.Tensor:
        found = (self.q * self.scale) @ self.k.T
        return found if self.hidden is None else found.masked_fill_(self.hidden, -math.inf)

    @property
    def dp(self) -> torch.Tensor:
        found = self.do @ self.v.T
        return found if self.hidden is None else found.masked_fill_(self.hidden, 0.0)


Sums = tuple[Sum, Sum, Sum]
"""Contributions of a head to dq, dk and dv."""
Bounded = tuple[torch.Tensor, torch.Tensor]
"""A result and its bound."""


@dataclass(frozen=True)
class Mistake:
    """A change of one step of the computation.

    own: the key head of each query head. counted: selects the heads of a group that contribute to dk and dv. exchanged:
    dk and dv are returned in each other's place.
    """

    text: str
    head: Callable[[Head], Head] = lambda head: head
    pairs: Callable[[Head, Pairs], Pairs] = lambda head, right: right
    sums: Callable[[Head, Pairs, Sums], Sums] = lambda head, right, sums: sums
    own: Sequence[int] | None = None
    counted: Callable[[Sequence[Sums]], Sequence[Sums]] = lambda sums: sums
    exchanged: bool = False
    results: Callable[[torch.Tensor], torch.Tensor] = lambda value: value


@dataclass(frozen=True)
class Given:
    """A call: its inputs, its case, and the scale of its scores. factors: where p, ds and o are rounded to float8."""

    inputs: Inputs
    case: Case
    scale: float
    factors: Factors | None

    def operands(self, batch: int, head: int, key_head: int) -> tuple[torch.Tensor, ...]:
        """Return q, k, v and do of a query head and a key head in float64, multiplied by their scales."""
        places = (head, key_head, key_head, head)
        scales = self.inputs[4:] or (1.0,) * 4
        return tuple(
            x[batch, place].double() * scale for x, place, scale in zip(self.inputs[:4], places, scales, strict=True)
        )


def touched(case: Case, part: slice) -> list[tuple[int, int]]:
    """Return the batch entries and key heads whose results the part contains."""
    b, h, h_kv, s_q, s_k, d = case.shape
    found = set()
    heads = (h, h_kv, h_kv)
    for begin, count, size in zip(starts(case), heads, (s_q * d, s_k * d, s_k * d), strict=True):
        first = max(part.start - begin, 0) // size if size else 0
        last = min(cdiv(part.stop - begin, size), b * count) if size else 0
        found |= {(i // count, i % count * h_kv // count) for i in range(first, last)}
    return sorted(found)


def starts(case: Case) -> tuple[int, ...]:
    b, h, h_kv, s_q, s_k, d = case.shape
    keys = (b, h_kv, s_k, d)
    return outputs.starts(((b, h, s_q, d), keys, keys))


def part_results(given: Given, part: slice, units: Sequence[tuple[int, int]], mistake: Mistake) -> Bounded:
    """Return the part of the result after a mistake, with its bound."""
    device = given.inputs[0].device
    value, limit = (torch.zeros(part.stop - part.start, dtype=torch.float64, device=device) for _ in range(2))
    for unit in units:
        for begin, result, bound in _unit_results(given, unit, mistake):
            low, high = max(begin, part.start), min(begin + result.numel(), part.stop)
            if low < high:
                value[low - part.start : high - part.start] = result.flatten()[low - begin : high - begin]
                limit[low - part.start : high - part.start] = bound.flatten()[low - begin : high - begin]
    return value, limit


def _unit_results(
    given: Given, unit: tuple[int, int], mistake: Mistake
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield the results of a key head and of its query heads: where each begins, its values and their bound."""
    case, scale = given.case, given.scale
    b, h, h_kv, s_q, s_k, d = case.shape
    batch, own = unit
    count, begins = (b * (h * s_q + 2 * h_kv * s_k) * d), starts(case)
    heads = [each for each in range(h) if (each * h_kv // h if mistake.own is None else mistake.own[each]) == own]
    unseen = mask(case, given.inputs[0].device)
    found = []
    for each in heads:
        q, k, v, do = given.operands(batch, each, own)
        head = mistake.head(Head(q, k, v, do, unseen, scale))
        right = pairs(*operands(head), head.hidden, head.scale, case.dtype, factors=given.factors)
        p_ds = mistake.pairs(head, right)
        sums = (sum_over_keys(p_ds, head.k, scale), *sums_over_queries(p_ds, head.q, head.do, scale))
        found.append(mistake.sums(head, p_ds, sums))
    for each, (dq, *_) in zip(heads, found, strict=True):
        yield begins[0] + (batch * h + each) * s_q * d, mistake.results(dq.value), dq.limit(s_k, count, case.dtype)
    key_results = [_added([sums[i] for sums in mistake.counted(found)], case, count) for i in (1, 2)]
    for begin, (value, bound) in zip(
        begins[1:], reversed(key_results) if mistake.exchanged else key_results, strict=True
    ):
        yield begin + (batch * h_kv + own) * s_k * d, mistake.results(value), bound


def _added(sums: Sequence[Sum], case: Case, count: int) -> Bounded:
    """Return a sum over the heads of a group, with its bound."""
    names = ("value", "variance", "shift", "squares")
    total = Sum(*(torch.stack([getattr(each, name) for each in sums]).sum(0) for name in names))
    parts = torch.stack([each.value.square() for each in sums]).sum(0) if len(sums) > 1 else None
    return total.value, total.limit(len(sums) * case["S_q"], count, case.dtype, parts)


def operands(head: Head) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return head.q, head.k, head.v, head.do


def mask(case: Case, device: torch.device, shift: int | None = None) -> torch.Tensor | None:
    """Return the mask of keys that a query does not see. shift: the own key of query 0."""
    if not case.option("causal"):
        return None
    shift = case["S_k"] - case["S_q"] if shift is None else shift
    return hidden(range(case["S_q"]), range(case["S_k"]), shift, window_of(case), device)
