"""Variants of attention: other scales, masks, heads and keys; a softmax that is put together wrongly; other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from suite import ops
from suite.numerics.attention import attention_limit
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, kept_without_the_rest, padded, spans, were
from suite.variants._rounding import coarser, rounded, sixteen

MOST_STEPS = 64
"""Blocks of keys that are gone through one after the other."""
MOST_SCORES = 2**22
"""Of a part with more scores none is compared: each variant computes them anew."""


@dataclass(frozen=True)
class Head:
    """One head: what its rows of the result are computed of, float64. hidden: (rows, keys), None without a mask."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    hidden: torch.Tensor | None

    @property
    def scores(self) -> torch.Tensor:
        found = (self.q * self.scale) @ self.k.T
        return found if self.hidden is None else found.masked_fill_(self.hidden, -math.inf)

    @property
    def unseen(self) -> torch.Tensor:
        """(rows, 1): queries that see no key."""
        if self.hidden is None:
            return torch.zeros_like(self.q[:, :1], dtype=torch.bool)
        return self.hidden.all(dim=1, keepdim=True)

    @property
    def weights(self) -> torch.Tensor:
        return torch.softmax(self.scores, dim=1).masked_fill(self.unseen, 0.0)


OfHead = Iterator[tuple[str, torch.Tensor, torch.Tensor]]
"""A mistake, and what a head's rows are after it, with their bound."""
Ways = Iterator[tuple[str, Head, torch.Tensor]]
"""A mistake, the head whose bound holds, and the weights of its keys."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    heads = [(batch, head) for batch in _places(part[0]) for head in _places(part[1])]
    rows = part[2].stop - part[2].start
    if not 0 < len(heads) * rows * case["S_k"] * case["D"] <= MOST_SCORES * case["D"]:
        return
    shape = tuple(each.stop - each.start for each in part)
    for mistake, of_heads in _of_all([_of_head(inputs, case, batch, head, part) for batch, head in heads]):
        value, limit = (torch.stack(each)[..., part[3]].reshape(shape) for each in zip(*of_heads, strict=True))
        yield Variant(mistake, value, limit)


def _of_all(heads: Sequence[OfHead]) -> Iterator[tuple[str, list[tuple[torch.Tensor, torch.Tensor]]]]:
    """The variants that every head has: which there are depends on a head's numbers. Computed as they are asked for."""
    first, *others = heads
    passed: list[dict[str, tuple[torch.Tensor, torch.Tensor]]] = [{} for _ in others]
    for mistake, *own in first:
        found = [(own[0], own[1])]
        for head, before in zip(others, passed, strict=True):
            while mistake not in before and (following := next(head, None)) is not None:
                before[following[0]] = following[1:]
            if mistake in before:
                found.append(before.pop(mistake))
        if len(found) == len(heads):
            yield mistake, found


def _places(piece: slice) -> range:
    return range(piece.start, piece.stop)


def _of_head(inputs: Inputs, case: Case, batch: int, head: int, part: Part) -> OfHead:
    _, h, h_kv, s_q, s_k, d = case.shape
    q, k, v = inputs[:3]
    scale = ops.get("attention").arguments(case).get("sm_scale", d**-0.5)
    own = head * h_kv // h
    raw = Head(
        q[batch, head, part[2]].double(),
        k[batch, own].double(),
        v[batch, own].double(),
        scale,
        _mask(case, part[2], q.device),
    )
    scales = [float(each) for each in inputs[3:]] or [1.0, 1.0, 1.0]  # of float8
    right = _scaled(raw, scales)
    ways = [_scales_of_float8(raw, scales) if inputs[3:] else _scales(right, scale, d)]
    ways += [_masks(right, case, part), _keys(right, case)]
    if not inputs[3:]:
        ways.append(_maxima(right))
        if s_q * s_k <= MOST_SCORES:
            every = slice(0, s_q)
            whole = replace(right, q=q[batch, head].double(), hidden=_mask(case, every, q.device))
            ways.append(_of_all_queries(right, whole, part))
    if h_kv > 1:
        others = {f"query head h read key head {name}": place for name, place in _heads(head, h, h_kv).items()}
        ways.append(
            (
                mistake,
                other := _scaled(replace(raw, k=k[batch, place].double(), v=v[batch, place].double()), scales),
                other.weights,
            )
            for mistake, place in others.items()
        )
    ways.append(_blocks(right))
    if not inputs[3:]:  # the bound of float8 is coarser than these
        ways.append(_digits(right, case))
    for mistake, of, weights in (each for way in ways for each in way):
        value = _sum(weights, of.v)
        yield mistake, value, _limit(of, weights, value, case)
    if not inputs[3:]:
        yield from _values(right, case)


def _scaled(raw: Head, scales: Sequence[float]) -> Head:
    return replace(raw, q=raw.q * scales[0], k=raw.k * scales[1], v=raw.v * scales[2])


def _scales_of_float8(raw: Head, scales: Sequence[float]) -> Ways:
    """A scale of q, k or v that is left out or applied twice; scores that are not scaled by sm_scale."""
    for place, name in enumerate("qkv"):
        for mistake, power in (("left out", 0), ("applied twice", 2)):
            of = _scaled(raw, [each ** (power if i == place else 1) for i, each in enumerate(scales)])
            yield f"the scale of {name} was {mistake}", of, of.weights
    of = replace(_scaled(raw, scales), scale=1.0)
    yield "scores were not scaled", of, of.weights


def _sum(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """weights @ v, where NaN and infinities in v count for the queries alone that give them a weight."""
    if bool(v.isfinite().all()):
        return weights @ v
    value = weights @ v.nan_to_num(0.0, 0.0, 0.0)
    odd = torch.where(v.isfinite(), 0.0, v)
    for key in odd.ne(0.0).any(dim=1).nonzero().flatten().tolist():
        value = value + torch.where(weights[:, key, None] == 0.0, 0.0, weights[:, key, None] * odd[key])
    return value


def _limit(of: Head, weights: torch.Tensor, value: torch.Tensor, case: Case) -> torch.Tensor:
    b, h, _, s_q, s_k, d = case.shape
    sizes = (of.q * of.scale).square() @ of.k.square().T
    finite = of.v.nan_to_num(0.0, 0.0, 0.0)
    return attention_limit(
        value, weights, of.scores, sizes, finite, head_dim=d, terms=s_k, count=b * h * s_q * d, dtype=case.dtype
    )


def _mask(case: Case, rows: slice, device: torch.device, shift: int | None = None) -> torch.Tensor | None:
    """Which keys the queries `rows` do not see: those after their own, which is `shift` keys later."""
    if not case.option("causal"):
        return None
    s_q, s_k = case["S_q"], case["S_k"]
    own = torch.arange(rows.start, rows.stop, device=device) + (s_k - s_q if shift is None else shift)
    return torch.arange(s_k, device=device) > own[:, None]


def _scales(right: Head, scale: float, d: int) -> Ways:
    given = scale != d**-0.5
    for mistake, other in (
        ("scores were not scaled", 1.0),
        ("scores were scaled twice" + ("" if given else ", by 1 / D"), scale**2),
        ("scores were multiplied by sqrt(D)", d**0.5),
        *((("sm_scale was 1 / sqrt(D)", d**-0.5), ("sm_scale was 1 / D", 1.0 / d)) if given else ()),
        ("2^x stood for e^x", scale * math.log(2.0)),
        ("scores were scaled by log2(e) too much", scale / math.log(2.0)),
    ):
        of = replace(right, scale=other)
        yield mistake, of, of.weights


def _masks(right: Head, case: Case, part: Part) -> Ways:
    if right.hidden is None:
        return
    s_q, s_k = case["S_q"], case["S_k"]
    for mistake, shift in (
        ("a query did not see its own key", s_k - s_q - 1),
        ("a query saw the key after its own", s_k - s_q + 1),
        ("the mask was aligned to the first key", 0),
        ("there was no mask", s_k),
    ):
        of = replace(right, hidden=_mask(case, part[2], right.q.device, shift))
        yield mistake, of, of.weights
    plain = replace(right, hidden=None)
    hidden = right.hidden
    yield "hidden keys counted in the denominator", right, plain.weights.masked_fill(hidden, 0.0)
    weights, unseen = right.weights, right.unseen
    yield "a query that sees no key was 0 / 0", right, torch.where(unseen, math.nan, weights)
    yield "a query that sees no key gave the mean of V", right, torch.where(unseen, 1.0 / s_k, weights)


def _keys(right: Head, case: Case) -> Ways:
    """Too few keys, or scores of 0 beyond them."""
    s_k = case["S_k"]
    hidden = torch.zeros_like(right.scores, dtype=torch.bool) if right.hidden is None else right.hidden
    place = torch.arange(s_k, device=right.q.device)
    for kept in kept_without_the_rest(s_k):
        left = were(s_k - kept, "key")
        for which, gone in (("last", place >= kept), ("first", place < s_k - kept)):
            of = replace(right, hidden=hidden | gone)
            yield f"the {which} {left} left out", of, of.weights
    highest = right.scores.amax(dim=1, keepdim=True).clamp(min=0.0)
    e = torch.exp(right.scores - highest)
    for more in padded(s_k):
        total = e.sum(dim=1, keepdim=True) + more * torch.exp(-highest)
        yield f"{were(more, 'key')} counted beyond the last, of score 0", right, e / total


def _heads(head: int, h: int, h_kv: int) -> dict[str, int]:
    return {"h % H_kv, not h // (H / H_kv)": head % h_kv, "0": 0, "h": min(head, h_kv - 1)}


def _maxima(right: Head) -> Ways:
    """Another maximum of a query's scores, or a denominator that is missing."""
    scores = right.scores
    single = scores.float()
    yield _shifted("the maximum was not subtracted", right, torch.zeros_like(single[:, :1]))
    yield _shifted("the maximum began at 0", right, single.amax(dim=1, keepdim=True).clamp(min=0.0))
    e = torch.exp(scores - scores.amax(dim=1, keepdim=True)).masked_fill(right.unseen, 0.0)
    yield "it was not divided by the sum of weights", right, e


def _of_all_queries(right: Head, whole: Head, part: Part) -> Ways:
    """What depends on the scores of all queries of a head."""
    every = whole.scores
    yield _shifted("the largest of all scores was subtracted", right, every.amax().float().expand(len(right.q), 1))
    yield _shifted("the maximum was of the queries of a key", right, every.amax(dim=0, keepdim=True).float())
    yield "the probabilities of a key added up to 1", right, torch.softmax(every, dim=0)[part[2]]


def _shifted(mistake: str, right: Head, shift: torch.Tensor) -> tuple[str, Head, torch.Tensor]:
    """A softmax in float32 in which `shift` is subtracted from the scores: exponentials may overflow or vanish."""
    e = torch.exp(right.scores.float() - shift)
    return mistake, right, (e / e.sum(dim=1, keepdim=True)).double().masked_fill(right.unseen, 0.0)


def _blocks(right: Head) -> Ways:
    """An online softmax that does not rescale what it has when the maximum grows, or adds parts without rescaling."""
    scores = right.scores
    for size in SIZES:
        if not size < scores.shape[1] <= size * MOST_STEPS * (4 if size == 1 else 1):
            continue
        largest, total = torch.full_like(scores[:, :1], -math.inf), torch.zeros_like(scores[:, :1])
        kept, shifts, alone = torch.zeros_like(total), [], []
        for span in spans(scores.shape[1], size):
            before = largest
            largest = torch.maximum(before, scores[:, span].amax(dim=1, keepdim=True))
            shift = torch.where(largest == -math.inf, 0.0, largest)
            added = torch.exp(scores[:, span] - shift)
            total = total * torch.exp(before - shift) + added.sum(dim=1, keepdim=True)
            kept = kept + added.sum(dim=1, keepdim=True)
            shifts.append(added)
            own = scores[:, span].amax(dim=1, keepdim=True)
            alone.append(torch.exp(scores[:, span] - torch.where(own == -math.inf, 0.0, own)))
        last = torch.where(largest == -math.inf, 0.0, largest)
        sums = [torch.where(each == 0.0, 1.0, each) for each in (kept, total)]
        grew = f"not rescaled when the maximum grew, {f'block by block of {size}' if size > 1 else 'key by key'}"
        yield f"the sum of weights was {grew}", right, torch.exp(scores - last) / sums[0]
        yield f"the output was {grew}", right, torch.cat(shifts, dim=1) / sums[1]
        yield f"the output and the sum of weights were {grew}", right, torch.cat(shifts, dim=1) / sums[0]
        if size > 1:
            parts = torch.cat(alone, dim=1)
            total = parts.sum(dim=1, keepdim=True)
            weights = parts / torch.where(total == 0.0, 1.0, total)
            yield f"parts of {size} keys were added relative to their own maxima", right, weights


def _digits(right: Head, case: Case) -> Ways:
    """Roundings on the way."""
    kinds = [*coarser(case.dtype), *(["tf32"] if case.dtype == "float32" else [])]
    for kind in kinds:
        of = replace(right, q=rounded(right.q, kind), k=rounded(right.k, kind), v=rounded(right.v, kind))
        yield f"q, k and v were rounded to {kind}", of, of.weights
        of = replace(right, q=of.q, k=of.k)
        yield f"q and k were rounded to {kind}", of, of.weights
        yield (
            f"factors of both products were rounded to {kind}",
            replace(of, v=rounded(right.v, kind)),
            rounded(of.weights, kind),
        )
    if case.dtype == "float32":
        for kind in ("float16", "bfloat16"):
            yield f"probabilities were rounded to {kind}", right, rounded(right.weights, kind)
            e = torch.exp(right.scores - right.scores.amax(dim=1, keepdim=True)).masked_fill(right.unseen, 0.0)
            total = e.sum(dim=1, keepdim=True)
            yield f"weights were rounded to {kind}", right, rounded(e, kind) / total.masked_fill(right.unseen, 1.0)
    for kind in sixteen(case.dtype):
        weights = torch.softmax(rounded(right.scores, kind), dim=1).masked_fill(right.unseen, 0.0)
        yield f"scores were rounded to {kind}", right, weights


def _values(right: Head, case: Case) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """What is no sum of values by other weights."""
    weights = right.weights
    value = _sum(weights, right.v)
    bound = _limit(right, weights, value, case)
    for kind in coarser(case.dtype):
        yield f"the result was rounded to {kind}", rounded(value, kind), bound
    if right.hidden is not None or not bool(right.v.isfinite().all()):
        yield "0 times NaN let a hidden key through", weights @ right.v, bound
    if right.hidden is not None:
        scores = (right.q * right.scale) @ right.k.T + torch.where(right.hidden, -math.inf, 0.0)
        weights = torch.softmax(scores, dim=1).masked_fill(right.unseen, 0.0)
        yield "NaN let a hidden key through, in its score and as 0 times NaN", weights @ right.v, bound
