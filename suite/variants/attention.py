"""Variants of attention: other scales, masks, heads and keys; a wrongly combined softmax; other digits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from suite import ops
from suite.numerics.attention import attention_limit
from suite.numerics.formats import MAX_FINITE
from suite.numerics.masks import hidden
from suite.ops.attention import window_of
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES, count_were, padding_lengths, shortened_lengths, spans
from suite.variants._minus_infinity import MINUS_INFINITY
from suite.variants._rounding import coarser_formats, rounded, sixteen_bit_formats

MAX_STEPS = 64
"""Largest number of blocks of keys in a simulated loop."""
HEAD_SIZES = (64, 128)
"""Head dimensions for which a kernel may be written."""
WINDOWS = (32, 64, 128)
"""Distances from which keys may be left out by mistake."""
MAX_SCORES = 2**22
"""Largest number of scores of a part with variants, over its heads and rows: each variant computes its own scores."""


@dataclass(frozen=True)
class Head:
    """The operands of some rows of one head, float64. hidden: (rows, keys), None without a mask."""

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
        """True for queries that see no key; (rows, 1)."""
        if self.hidden is None:
            return torch.zeros_like(self.q[:, :1], dtype=torch.bool)
        return self.hidden.all(dim=1, keepdim=True)

    @property
    def weights(self) -> torch.Tensor:
        return torch.softmax(self.scores, dim=1).masked_fill(self.unseen, 0.0)


HeadResults = Iterator[tuple[str, torch.Tensor, torch.Tensor]]
"""Yields each mistake with a head's rows of the result and their bound."""
HeadWeights = Iterator[tuple[str, Head, torch.Tensor]]
"""Yields each mistake with a head, which gives the bound, and the weights of its keys."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    heads = [(batch, head) for batch in _places(part[0]) for head in _places(part[1])]
    rows = part[2].stop - part[2].start
    if not 0 < len(heads) * rows * case["S_k"] * case["D"] <= MAX_SCORES * case["D"]:
        return
    shape = tuple(each.stop - each.start for each in part)
    for mistake, head_results in _common_mistakes(
        [_head_results(inputs, case, batch, head, part) for batch, head in heads]
    ):
        value, limit = (torch.stack(each)[..., part[3]].reshape(shape) for each in zip(*head_results, strict=True))
        yield Variant(mistake, value, limit)


def _common_mistakes(heads: Sequence[HeadResults]) -> Iterator[tuple[str, list[tuple[torch.Tensor, torch.Tensor]]]]:
    """Yield the mistakes that all heads have, on demand. A mistake may be missing for some heads' numbers."""
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


def _head_results(inputs: Inputs, case: Case, batch: int, head: int, part: Part) -> HeadResults:
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
    scales = [float(each) for each in inputs[3:]] or [1.0, 1.0, 1.0]  # float8 only
    right = _scaled(raw, scales)
    groups: list[HeadWeights] = []
    if h_kv > 1:
        others = {f"query head h read key head {name}": place for name, place in _heads(head, h, h_kv).items()}
        groups.append(
            (
                mistake,
                other := _scaled(replace(raw, k=k[batch, place].double(), v=v[batch, place].double()), scales),
                other.weights,
            )
            for mistake, place in others.items()
        )
    groups.append(_masks(right, case, part))
    groups += [_windows(right, case, part), _sliding(right, case, part)]
    groups.append(_float8_scales(raw, scales) if inputs[3:] else _scales(right, scale, d))
    if not inputs[3:]:
        groups.append(_maxima(right))
        if _scores_may_be_infinite(q, k):
            groups.append(_minus_infinity(right))
        if s_q * s_k <= MAX_SCORES:
            every = slice(0, s_q)
            whole = replace(right, q=q[batch, head].double(), hidden=_mask(case, every, q.device))
            groups.append(_across_queries(right, whole, part))
    groups.append(_keys(right, case))
    groups.append(_blocks(right))
    if not inputs[3:]:  # the bound of float8 is coarser than these
        groups.append(_digits(right, case))
    for mistake, changed, weights in (each for group in groups for each in group):
        value = _sum(weights, changed.v)
        yield mistake, value, _limit(changed, weights, value, case)
    if not inputs[3:]:
        yield from _values(right, case)


def _scaled(raw: Head, scales: Sequence[float]) -> Head:
    return replace(raw, q=raw.q * scales[0], k=raw.k * scales[1], v=raw.v * scales[2])


def _float8_scales(raw: Head, scales: Sequence[float]) -> HeadWeights:
    """A scale of q, k or v is left out or applied twice; scores are not scaled by sm_scale."""
    for place, name in enumerate("qkv"):
        for mistake, power in (("left out", 0), ("applied twice", 2)):
            changed = _scaled(raw, [each ** (power if i == place else 1) for i, each in enumerate(scales)])
            yield f"the scale of {name} was {mistake}", changed, changed.weights
    changed = replace(_scaled(raw, scales), scale=1.0)
    yield "scores were not scaled", changed, changed.weights


def _sum(weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return weights @ v, where NaN and infinities in v reach only queries that give them a weight."""
    if bool(v.isfinite().all()):
        return weights @ v
    value = weights @ v.nan_to_num(0.0, 0.0, 0.0)
    odd = torch.where(v.isfinite(), 0.0, v)
    for key in odd.ne(0.0).any(dim=1).nonzero().flatten().tolist():
        value = value + torch.where(weights[:, key, None] == 0.0, 0.0, weights[:, key, None] * odd[key])
    return value


def _limit(head: Head, weights: torch.Tensor, value: torch.Tensor, case: Case) -> torch.Tensor:
    b, h, _, s_q, s_k, d = case.shape
    sizes = (head.q * head.scale).square() @ head.k.square().T
    finite = head.v.nan_to_num(0.0, 0.0, 0.0)
    return attention_limit(
        value, weights, head.scores, sizes, finite, head_dim=d, terms=s_k, count=b * h * s_q * d, dtype=case.dtype
    )


def _mask(case: Case, rows: slice, device: torch.device, shift: int | None = None) -> torch.Tensor | None:
    """Return the mask of the keys that `rows` do not see: those after their own, and those before a window.

    shift: the own key of query 0.
    """
    if not case.option("causal"):
        return None
    s_q, s_k = case["S_q"], case["S_k"]
    shift = s_k - s_q if shift is None else shift
    return hidden(range(rows.start, rows.stop), range(s_k), shift, window_of(case), device)


def _scales(right: Head, scale: float, d: int) -> HeadWeights:
    given = scale != d**-0.5
    for mistake, other in (
        ("scores were not scaled", 1.0),
        ("scores were scaled twice" + ("" if given else ", by 1 / D"), scale**2),
        ("scores were multiplied by sqrt(D)", d**0.5),
        *((("sm_scale was 1 / sqrt(D)", d**-0.5), ("sm_scale was 1 / D", 1.0 / d)) if given else ()),
        *((f"sm_scale was 1 / sqrt({size}), not 1 / sqrt(D)", size**-0.5) for size in HEAD_SIZES if size != d),
        ("2^x was used instead of e^x", scale * math.log(2.0)),
        ("scores were scaled by log2(e) too much", scale / math.log(2.0)),
    ):
        changed = replace(right, scale=other)
        yield mistake, changed, changed.weights


def _masks(right: Head, case: Case, part: Part) -> HeadWeights:
    if right.hidden is None:
        return
    s_q, s_k = case["S_q"], case["S_k"]
    for mistake, shift in (
        ("a query did not see its own key", s_k - s_q - 1),
        ("a query saw the key after its own", s_k - s_q + 1),
        ("the mask was aligned to the first key", 0),
    ):
        changed = replace(right, hidden=_mask(case, part[2], right.q.device, shift))
        yield mistake, changed, changed.weights
    plain = replace(right, hidden=None)
    yield "there was no mask", plain, plain.weights
    yield "hidden keys counted in the denominator", right, plain.weights.masked_fill(right.hidden, 0.0)
    weights, unseen = right.weights, right.unseen
    yield "a query that sees no key was 0 / 0", right, torch.where(unseen, math.nan, weights)
    yield "a query that sees no key gave the mean of V", right, torch.where(unseen, 1.0 / s_k, weights)


def _windows(right: Head, case: Case, part: Part) -> HeadWeights:
    """Only keys near a query's own are seen."""
    s_q, s_k = case["S_q"], case["S_k"]
    keys = torch.arange(s_k, device=right.q.device)
    distance = torch.arange(part[2].start, part[2].stop, device=right.q.device)[:, None] + s_k - s_q - keys
    for size in WINDOWS:
        if size < s_k:
            far = distance.abs() >= size
            changed = replace(right, hidden=far if right.hidden is None else right.hidden | far)
            yield f"keys {size} and more places away were left out", changed, changed.weights


def _sliding(right: Head, case: Case, part: Part) -> HeadWeights:
    """The window of the case is at another place, or its first keys are left out."""
    window = window_of(case)
    if window is None:
        return
    s_q, s_k = case["S_q"], case["S_k"]
    rows = torch.arange(part[2].start, part[2].stop, device=right.q.device)[:, None]
    keys, own = torch.arange(s_k, device=right.q.device), rows + (s_k - s_q)
    found = {
        "the window was aligned to the first key": (keys > own) | (keys <= rows - window),
        "a window had later keys too": keys <= own - window,
    }
    for size in (each for each in SIZES if each > 1):
        first = ((rows // size * size + s_k - s_q - window + 1).clamp(min=0) // size + 1) * size
        found[f"the first tile of a window was left out, in tiles of {size}"] = _mask_of(right) | (keys < first)
    for mistake, unseen in found.items():
        changed = replace(right, hidden=unseen)
        yield mistake, changed, changed.weights


def _mask_of(right: Head) -> torch.Tensor:
    return torch.zeros_like(right.scores, dtype=torch.bool) if right.hidden is None else right.hidden


def _keys(right: Head, case: Case) -> HeadWeights:
    """Too few keys, or scores of 0 beyond them."""
    s_k = case["S_k"]
    unseen = _mask_of(right)
    place = torch.arange(s_k, device=right.q.device)
    for kept in shortened_lengths(s_k):
        left = count_were(s_k - kept, "key")
        for which, gone in (("last", place >= kept), ("first", place < s_k - kept)):
            changed = replace(right, hidden=unseen | gone)
            yield f"the {which} {left} left out", changed, changed.weights
    highest = right.scores.amax(dim=1, keepdim=True).clamp(min=0.0)
    e = torch.exp(right.scores - highest)
    for more in padding_lengths(s_k):
        total = e.sum(dim=1, keepdim=True) + more * torch.exp(-highest)
        yield f"{count_were(more, 'key')} counted beyond the last, of score 0", right, e / total


def _heads(head: int, h: int, h_kv: int) -> dict[str, int]:
    return {"h % H_kv, not h // (H / H_kv)": head % h_kv, "0": 0, "h": min(head, h_kv - 1)}


def _maxima(right: Head) -> HeadWeights:
    """A wrong maximum of a query's scores, or a missing denominator."""
    scores = right.scores
    single = scores.float()
    yield _shifted("the maximum was not subtracted", right, torch.zeros_like(single[:, :1]))
    yield _shifted("the maximum began at 0", right, single.amax(dim=1, keepdim=True).clamp(min=0.0))
    shifted = torch.exp(single - single.amax(dim=1, keepdim=True).clamp(min=0.0))
    total = shifted.sum(dim=1, keepdim=True)
    weights = torch.where(total > 0.0, shifted / total, 0.0).double().masked_fill(right.unseen, 0.0)
    yield "the maximum began at 0 and a sum of 0 gave zeros", right, weights
    e = torch.exp(scores - scores.amax(dim=1, keepdim=True)).masked_fill(right.unseen, 0.0)
    yield "it was not divided by the sum of weights", right, e


def _scores_may_be_infinite(q: torch.Tensor, k: torch.Tensor) -> bool:
    """True if a score may overflow float32, or if q or k has NaN or infinities."""
    largest = float(q.double().abs().amax() * k.double().abs().amax()) * q.shape[-1]
    return not largest <= MAX_FINITE["float32"]


def _minus_infinity(right: Head) -> HeadWeights:
    """An online softmax without a guard for a first block of keys that score minus infinity.

    The results of heads without such keys are right.
    """
    scores, larger = right.scores.float(), None
    for size in reversed(SIZES):
        hidden = (scores[:, :size] == -math.inf).all(dim=1, keepdim=True) & ~right.unseen
        if size < scores.shape[1] and (larger is None or not larger.any() or not torch.equal(hidden, larger)):
            larger = hidden
            mistake = f"{MINUS_INFINITY.format('query')}, in blocks of at most {size} keys"
            yield mistake, right, right.weights.masked_fill(hidden, math.nan)


def _across_queries(right: Head, whole: Head, part: Part) -> HeadWeights:
    """Mistakes with the scores of all queries of a head."""
    every = whole.scores
    yield _shifted("the largest of all scores was subtracted", right, every.amax().float().expand(len(right.q), 1))
    yield _shifted("the maximum was of the queries of a key", right, every.amax(dim=0, keepdim=True).float())
    yield "the probabilities of a key added up to 1", right, torch.softmax(every, dim=0)[part[2]]


def _shifted(mistake: str, right: Head, shift: torch.Tensor) -> tuple[str, Head, torch.Tensor]:
    """A softmax in float32 that subtracts `shift` from the scores: exponentials may overflow or vanish."""
    e = torch.exp(right.scores.float() - shift)
    return mistake, right, (e / e.sum(dim=1, keepdim=True)).double().masked_fill(right.unseen, 0.0)


def _blocks(right: Head) -> HeadWeights:
    """An online softmax that does not rescale its sums when the maximum grows, or adds parts without rescaling."""
    scores = right.scores
    for size in SIZES:
        if not size < scores.shape[1] <= size * MAX_STEPS * (4 if size == 1 else 1):
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


def _digits(right: Head, case: Case) -> HeadWeights:
    """Intermediate roundings."""
    kinds = [*coarser_formats(case.dtype), *(["tf32"] if case.dtype == "float32" else [])]
    for kind in kinds:
        changed = replace(right, q=rounded(right.q, kind), k=rounded(right.k, kind), v=rounded(right.v, kind))
        yield f"q, k and v were rounded to {kind}", changed, changed.weights
        changed = replace(right, q=changed.q, k=changed.k)
        yield f"q and k were rounded to {kind}", changed, changed.weights
        yield (
            f"factors of both products were rounded to {kind}",
            replace(changed, v=rounded(right.v, kind)),
            rounded(changed.weights, kind),
        )
    if case.dtype == "float32":
        for kind in ("float16", "bfloat16"):
            yield f"probabilities were rounded to {kind}", right, rounded(right.weights, kind)
            e = torch.exp(right.scores - right.scores.amax(dim=1, keepdim=True)).masked_fill(right.unseen, 0.0)
            total = e.sum(dim=1, keepdim=True)
            yield f"weights were rounded to {kind}", right, rounded(e, kind) / total.masked_fill(right.unseen, 1.0)
    for kind in sixteen_bit_formats(case.dtype):
        weights = torch.softmax(rounded(right.scores, kind), dim=1).masked_fill(right.unseen, 0.0)
        yield f"scores were rounded to {kind}", right, weights


def _values(right: Head, case: Case) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Mistakes that are no weighted sum of the values."""
    weights = right.weights
    value = _sum(weights, right.v)
    bound = _limit(right, weights, value, case)
    for kind in coarser_formats(case.dtype):
        yield f"the result was rounded to {kind}", rounded(value, kind), bound
    if right.hidden is not None or not bool(right.v.isfinite().all()):
        yield "0 times NaN let a hidden key through", weights @ right.v, bound
    if right.hidden is not None:
        scores = (right.q * right.scale) @ right.k.T + torch.where(right.hidden, -math.inf, 0.0)
        weights = torch.softmax(scores, dim=1).masked_fill(right.unseen, 0.0)
        yield "NaN let a hidden key through, in its score and as 0 times NaN", weights @ right.v, bound
