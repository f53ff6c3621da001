"""Variants of attention_grad: other scales, masks, keys and heads; delta; incomplete sums; other digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from suite.numerics.attention_grad import FILLED, Pairs, Sum, sum_over_keys, sums_over_queries
from suite.numerics.bounds import rounding_variance
from suite.numerics.float8 import FLOAT8
from suite.ops.attention_grad import OP
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._attention_grad_results import Given, Head, Mistake, Sums, mask, operands, part_results, touched
from suite.variants._blocks import SIZES, count_were, shortened_lengths
from suite.variants._rounding import coarser_formats, rounded

HEAD_SIZES = (64, 128)
"""Head dimensions for which a kernel may be written."""
MAX_SCORES = 2**20
"""Largest number of scores of a part with variants, over its heads: each variant computes its own scores."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    units = touched(case, part[0])
    h, h_kv = case["H"], case["H_kv"]
    if not 0 < len(units) * (h // h_kv) * case["S_q"] * case["S_k"] <= MAX_SCORES:
        return
    scale = OP.arguments(case).get("sm_scale", case["D"] ** -0.5)
    given = Given(inputs, case, scale, OP.factors(inputs, case))
    every = [(batch, head) for batch in sorted({batch for batch, _ in units}) for head in range(h_kv)]
    for mistake in _mistakes(given):
        needed = units if mistake.own is None else every
        if len(needed) * (h // h_kv) * case["S_q"] * case["S_k"] <= MAX_SCORES:
            yield Variant(mistake.text, *part_results(given, part[0], needed, mistake))


def _mistakes(given: Given) -> Iterator[Mistake]:
    case = given.case
    yield from _groups(case)
    yield from _masks(case)
    yield from _scales(case, given.scale)
    yield from _float8_scales(given.inputs[4:])
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
        ("2^x was used instead of e^x", scale * math.log(2.0)),
        ("scores were scaled by log2(e) too much", scale / math.log(2.0)),
    ):
        yield Mistake(text, head=_replaced(scale=other_scale))


def _float8_scales(scales: Sequence[torch.Tensor]) -> Iterator[Mistake]:
    """The scale of an operand is left out or applied twice, wherever the operand is used."""
    for name, scale in zip(("q", "k", "v", "do"), scales, strict=bool(scales)):
        for text, factor in (("left out", 1.0 / float(scale)), ("applied twice", float(scale))):
            yield Mistake(f"the scale of {name} was {text}", head=_operand_times(name, factor))


def _operand_times(name: str, factor: float) -> Callable[[Head], Head]:
    return lambda head: replace(head, **{name: getattr(head, name) * factor})


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
    return replace(head, hidden=mask(case, head.q.device, shift))


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
    if dtype == FLOAT8:
        variance = variance + rounding_variance(ds, dtype, None, FILLED / float(ds.abs().amax()))
    elif dtype != "float32":
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
        q, k, v, do = (rounded(x, kind) for x in operands(head))
        return replace(head, q=q, k=k, v=v, do=do)

    return change


def _rounded_pairs(kind: str) -> Callable[[Head, Pairs], Pairs]:
    return lambda _, right: replace(right, p=rounded(right.p, kind), ds=rounded(right.ds, kind))
