"""Variants of attention_grad: other scales, masks, keys and heads; delta; incomplete sums; other digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from suite import ops
from suite.core.integers import cdiv
from suite.numerics.attention_grad import Pairs, Sum, pairs, sum_over_keys, sums_over_queries
from suite.numerics.bounds import rounding_variance
from suite.numerics.masks import hidden
from suite.ops.attention import window_of
from suite.problem import outputs
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, count_were, shortened_lengths
from suite.variants._rounding import coarser_formats, rounded

HEAD_SIZES = (64, 128)
"""Head dimensions for which a kernel may be written."""
MAX_SCORES = 2**20
"""Largest number of scores of a part with variants, over its heads: each variant computes its own scores."""


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


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    units = _touched(case, part[0])
    h, h_kv = case["H"], case["H_kv"]
    if not 0 < len(units) * (h // h_kv) * case["S_q"] * case["S_k"] <= MAX_SCORES:
        return
    scale = ops.get("attention_grad").arguments(case).get("sm_scale", case["D"] ** -0.5)
    every = [(batch, head) for batch in sorted({batch for batch, _ in units}) for head in range(h_kv)]
    for mistake in _mistakes(case, scale):
        needed = units if mistake.own is None else every
        if len(needed) * (h // h_kv) * case["S_q"] * case["S_k"] <= MAX_SCORES:
            yield Variant(mistake.text, *_part_results(inputs, case, part[0], needed, mistake, scale))


def _touched(case: Case, part: slice) -> list[tuple[int, int]]:
    """Return the batch entries and key heads whose results the part contains."""
    b, h, h_kv, s_q, s_k, d = case.shape
    found = set()
    heads = (h, h_kv, h_kv)
    for begin, count, size in zip(_starts(case), heads, (s_q * d, s_k * d, s_k * d), strict=True):
        first = max(part.start - begin, 0) // size if size else 0
        last = min(cdiv(part.stop - begin, size), b * count) if size else 0
        found |= {(i // count, i % count * h_kv // count) for i in range(first, last)}
    return sorted(found)


def _starts(case: Case) -> tuple[int, ...]:
    b, h, h_kv, s_q, s_k, d = case.shape
    keys = (b, h_kv, s_k, d)
    return outputs.starts(((b, h, s_q, d), keys, keys))


def _part_results(
    inputs: Inputs, case: Case, part: slice, units: Sequence[tuple[int, int]], mistake: Mistake, scale: float
) -> Bounded:
    """Return the part of the result after a mistake, with its bound."""
    value, limit = (torch.zeros(part.stop - part.start, dtype=torch.float64, device=inputs[0].device) for _ in range(2))
    for unit in units:
        for begin, result, bound in _unit_results(inputs, case, unit, mistake, scale):
            low, high = max(begin, part.start), min(begin + result.numel(), part.stop)
            if low < high:
                value[low - part.start : high - part.start] = result.flatten()[low - begin : high - begin]
                limit[low - part.start : high - part.start] = bound.flatten()[low - begin : high - begin]
    return value, limit


def _unit_results(
    inputs: Inputs, case: Case, unit: tuple[int, int], mistake: Mistake, scale: float
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield the results of a key head and of its query heads: where each begins, its values and their bound."""
    b, h, h_kv, s_q, s_k, d = case.shape
    batch, own = unit
    count, starts = (b * (h * s_q + 2 * h_kv * s_k) * d), _starts(case)
    heads = [each for each in range(h) if (each * h_kv // h if mistake.own is None else mistake.own[each]) == own]
    unseen = _mask(case, inputs[0].device)
    found = []
    for each in heads:
        places = (each, own, own, each)
        q, k, v, do = (x[batch, place].double() for x, place in zip(inputs, places, strict=True))
        head = mistake.head(Head(q, k, v, do, unseen, scale))
        p_ds = mistake.pairs(head, pairs(*_operands(head), head.hidden, head.scale, case.dtype))
        sums = (sum_over_keys(p_ds, head.k, scale), *sums_over_queries(p_ds, head.q, head.do, scale))
        found.append(mistake.sums(head, p_ds, sums))
    for each, (dq, *_) in zip(heads, found, strict=True):
        yield starts[0] + (batch * h + each) * s_q * d, mistake.results(dq.value), dq.limit(s_k, count, case.dtype)
    key_results = [_added([sums[i] for sums in mistake.counted(found)], case, count) for i in (1, 2)]
    for begin, (value, bound) in zip(
        starts[1:], reversed(key_results) if mistake.exchanged else key_results, strict=True
    ):
        yield begin + (batch * h_kv + own) * s_k * d, mistake.results(value), bound


def _added(sums: Sequence[Sum], case: Case, count: int) -> Bounded:
    """Return a sum over the heads of a group, with its bound."""
    names = ("value", "variance", "shift", "squares")
    total = Sum(*(torch.stack([getattr(each, name) for each in sums]).sum(0) for name in names))
    parts = torch.stack([each.value.square() for each in sums]).sum(0) if len(sums) > 1 else None
    return total.value, total.limit(len(sums) * case["S_q"], count, case.dtype, parts)


def _operands(head: Head) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return head.q, head.k, head.v, head.do


def _mask(case: Case, device: torch.device, shift: int | None = None) -> torch.Tensor | None:
    """Return the mask of keys that a query does not see. shift: the own key of query 0."""
    if not case.option("causal"):
        return None
    shift = case["S_k"] - case["S_q"] if shift is None else shift
    return hidden(range(case["S_q"]), range(case["S_k"]), shift, window_of(case), device)


def _mistakes(case: Case, scale: float) -> Iterator[Mistake]:
    yield from _groups(case)
    yield from _masks(case)
    yield from _scales(case, scale)
    yield from _deltas(case)
    yield from _features(case)
    yield from _ranges(case)
    yield from _digits(case)


def _scales(case: Case, scale: float) -> Iterator[Mistake]:
    for text, chosen, factor in (
        ("dq was not scaled", (0,), 1.0 / scale),
        ("dk was not scaled", (1,), 1.0 / scale),
        ("dq and dk were not scaled", (0, 1), 1.0 / scale),
        ("dq was scaled twice", (0,), scale),
        ("dk was scaled twice", (1,), scale),
        ("dq and dk were scaled twice", (0, 1), scale),
        ("dq and dk were multiplied by log2(e)", (0, 1), 1.0 / math.log(2.0)),
        ("dv was scaled", (2,), scale),
    ):
        yield Mistake(text, sums=_times(chosen, factor))
    plain = case["D"] ** -0.5
    others = {"sm_scale was 1 / sqrt(D)": plain}
    others |= {f"sm_scale was 1 / sqrt({size}), not 1 / sqrt(D)": size**-0.5 for size in HEAD_SIZES}
    for text, other in others.items():
        if other != scale:
            yield Mistake(text, head=_replaced(scale=other), sums=_times((0, 1), other / scale))
    for text, other_scale in (
        ("scores were not scaled", 1.0),
        ("scores were scaled twice", scale**2),
        ("2^x stood for e^x", scale * math.log(2.0)),
        ("scores were scaled by log2(e) too much", scale / math.log(2.0)),
    ):
        yield Mistake(text, head=_replaced(scale=other_scale))


def _times(chosen: Sequence[int], factor: float) -> Callable[[Head, Pairs, Sums], Sums]:
    def change(_: Head, __: Pairs, sums: Sums) -> Sums:
        dq, dk, dv = (
            Sum(x.value * factor, x.variance * factor**2, x.shift * abs(factor), x.squares * factor**2)
            if i in chosen
            else x
            for i, x in enumerate(sums)
        )
        return dq, dk, dv

    return change


def _replaced(**changes: object) -> Callable[[Head], Head]:
    return lambda head: replace(head, **changes)  # type: ignore[arg-type]


def _masks(case: Case) -> Iterator[Mistake]:
    if not case.option("causal"):
        return
    for text, shift in (
        ("a query did not see its own key", (later := case["S_k"] - case["S_q"]) - 1),
        ("a query saw the key after its own", later + 1),
        ("the mask was aligned to the first key", 0),
    ):
        yield Mistake(text, head=partial(_masked, case, shift))
    yield Mistake("there was no mask", head=_replaced(hidden=None))
    yield Mistake("a query that sees no key was 0 / 0", pairs=_not_a_number)


def _masked(case: Case, shift: int, head: Head) -> Head:
    return replace(head, hidden=_mask(case, head.q.device, shift))


def _not_a_number(head: Head, right: Pairs) -> Pairs:
    """Set p to NaN for queries that see no key."""
    assert head.hidden is not None
    unseen = head.hidden.all(dim=1, keepdim=True)
    return replace(right, p=right.p.masked_fill(unseen, math.nan), ds=right.ds.masked_fill(unseen, math.nan))


def _deltas(case: Case) -> Iterator[Mistake]:
    """A wrong p, or a wrong ds = p (dp - delta)."""
    changed = partial(_changed, case.dtype)
    yield Mistake(
        "the maximum was not subtracted", pairs=lambda head, right: changed(head, right, p=_overflowing(head))
    )
    yield Mistake("delta was left out", pairs=lambda head, right: changed(head, right, delta=0.0))
    yield Mistake("delta was added", pairs=lambda head, right: changed(head, right, delta=-_delta(head, right.p)))
    yield Mistake(
        "ds was dp - delta, without p", pairs=lambda head, right: replace(right, ds=head.dp - _delta(head, right.p))
    )
    for kind in coarser_formats(case.dtype) if case.dtype == "float32" else ():
        yield Mistake(f"delta was of an output rounded to {kind}", pairs=_rounded_output(kind))


def _delta(head: Head, p: torch.Tensor) -> torch.Tensor:
    return (p * head.dp).sum(dim=1, keepdim=True)


def _overflowing(head: Head) -> torch.Tensor:
    """Return p in float32 without subtracting the maximum: exponentials overflow or vanish."""
    e = torch.exp(head.scores.float())
    p = (e / e.sum(dim=1, keepdim=True)).double()
    return p if head.hidden is None else p.masked_fill(head.hidden, 0.0)


def _rounded_output(kind: str) -> Callable[[Head, Pairs], Pairs]:
    def change(head: Head, right: Pairs) -> Pairs:
        o = rounded(right.p @ head.v, kind)
        return _changed("float32", head, right, delta=(head.do * o).sum(dim=1, keepdim=True))

    return change


def _changed(
    dtype: str, head: Head, right: Pairs, *, p: torch.Tensor | None = None, delta: torch.Tensor | float | None = None
) -> Pairs:
    """Return `Pairs` with another p or delta, and the errors that follow from it."""
    p = right.p if p is None else p
    centred = head.dp - (_delta(head, p) if delta is None else delta)
    ds = p * centred
    variance = right.ds_variance + right.p_variance * centred.square()
    if dtype != "float32":
        variance = variance + rounding_variance(ds, dtype)
    return replace(right, p=p, ds=ds, ds_variance=variance, ds_shift=right.ds_shift + right.p_shift * centred.abs())


def _groups(case: Case) -> Iterator[Mistake]:
    h, h_kv = case["H"], case["H_kv"]
    yield Mistake("dk and dv were exchanged", exchanged=True)
    if h > h_kv:
        yield Mistake("dk and dv were of the last head of each group alone", counted=lambda sums: sums[-1:])
        yield Mistake("dk and dv were of the first head of each group alone", counted=lambda sums: sums[:1])
        if h_kv > 1:
            yield Mistake("query head h read key head h % H_kv, not h // (H / H_kv)", own=[i % h_kv for i in range(h)])


def _features(case: Case) -> Iterator[Mistake]:
    """Features of q and k that are left out of the scores."""
    for kept in {size for size in (16, 32, *HEAD_SIZES) if size < case["D"]}:
        yield Mistake(
            f"the last {case['D'] - kept} of D were left out of the scores", pairs=_scores_of(kept, case.dtype)
        )


def _scores_of(kept: int, dtype: str) -> Callable[[Head, Pairs], Pairs]:
    def change(head: Head, right: Pairs) -> Pairs:
        scores = replace(head, q=head.q[:, :kept], k=head.k[:, :kept]).scores
        unseen = (scores == -math.inf).all(dim=1, keepdim=True)
        return _changed(dtype, head, right, p=torch.softmax(scores, dim=1).masked_fill(unseen, 0.0))

    return change


def _ranges(case: Case) -> Iterator[Mistake]:
    """Keys or queries that are left out, or added twice."""
    s_q, s_k = case["S_q"], case["S_k"]
    for kept in shortened_lengths(s_k):
        gone = count_were(s_k - kept, "key")
        yield Mistake(f"the last {gone} left out", head=_hidden_keys(kept))
        yield Mistake(f"the last {gone} left out of dq", sums=_range_sums(keys=slice(0, kept), in_place=True))
    for kept in shortened_lengths(s_q):
        gone = "query was" if s_q - kept == 1 else f"{s_q - kept} queries were"
        yield Mistake(f"the last {gone} left out of dk and dv", sums=_range_sums(queries=slice(0, kept), in_place=True))
    for size in SIZES:
        if size < s_k:
            yield Mistake(
                f"the first {count_were(size, 'key')} added to dq twice", sums=_range_sums(keys=slice(0, size))
            )
        if size < s_q:
            first = "first query was" if size == 1 else f"first {size} queries were"
            yield Mistake(f"the {first} added to dk and dv twice", sums=_range_sums(queries=slice(0, size)))
    yield Mistake("each part of dq was added twice", sums=_times((0,), 2.0))


def _hidden_keys(kept: int) -> Callable[[Head], Head]:
    def change(head: Head) -> Head:
        gone = (torch.arange(len(head.k), device=head.k.device) >= kept).expand(len(head.q), -1)
        return replace(head, hidden=gone if head.hidden is None else head.hidden | gone)

    return change


def _range_sums(
    *, keys: slice | None = None, queries: slice | None = None, in_place: bool = False
) -> Callable[[Head, Pairs, Sums], Sums]:
    """Restrict dq to some keys, or dk and dv to some queries; without `in_place` add these sums a second time."""

    def change(head: Head, right: Pairs, sums: Sums) -> Sums:
        part = _narrowed(right, queries or slice(None), keys or slice(None))
        dq, dk, dv = sums
        if keys is not None:
            mine = sum_over_keys(part, head.k[keys], head.scale)
            dq = mine if in_place else _plus(dq, mine)
        if queries is not None:
            others = sums_over_queries(part, head.q[queries], head.do[queries], head.scale)
            dk, dv = others if in_place else (_plus(dk, others[0]), _plus(dv, others[1]))
        return dq, dk, dv

    return change


def _plus(one: Sum, other: Sum) -> Sum:
    return Sum(*(getattr(one, name) + getattr(other, name) for name in ("value", "variance", "shift", "squares")))


def _narrowed(right: Pairs, queries: slice, keys: slice) -> Pairs:
    squares = ("p", "ds", "p_variance", "ds_variance", "p_shift", "ds_shift")
    parts = {name: getattr(right, name)[queries, keys] for name in squares}
    return Pairs(**parts, exponent=right.exponent[queries], delta=right.delta[queries])


def _digits(case: Case) -> Iterator[Mistake]:
    """Intermediate roundings."""
    for kind in coarser_formats(case.dtype):
        yield Mistake(f"the results were rounded to {kind}", results=_rounded_to(kind))
    for kind in (*coarser_formats(case.dtype), *(("tf32",) if case.dtype == "float32" else ())):
        yield Mistake(f"q, k, v and do were rounded to {kind}", head=_rounded_operands(kind))
        if case.dtype == "float32":
            yield Mistake(f"p and ds were rounded to {kind}", pairs=_rounded_pairs(kind))


def _rounded_to(kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda value: rounded(value, kind)


def _rounded_operands(kind: str) -> Callable[[Head], Head]:
    def change(head: Head) -> Head:
        q, k, v, do = (rounded(x, kind) for x in _operands(head))
        return replace(head, q=q, k=k, v=v, do=do)

    return change


def _rounded_pairs(kind: str) -> Callable[[Head, Pairs], Pairs]:
    return lambda _, right: replace(right, p=rounded(right.p, kind), ds=rounded(right.ds, kind))
