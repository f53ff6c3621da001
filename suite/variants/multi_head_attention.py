"""Variants of multi-head attention: weights in another order, other scales, heads, masks and digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from suite import ops
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._rounding import rounded, sixteen_bit_formats
from suite.variants.attention import WINDOWS

MAX_WORK = 2**30
"""Largest number of multiplications of one batch entry; larger layers have no variants."""
OVERFLOW = math.log(2.0**128)
"""A score whose exponential is infinite in float32."""

ChangedLayer = tuple[str, torch.Tensor, torch.Tensor, Case]
"""A mistake, with the w_qkv, w_out and case that give its result by right computation."""


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    _, s, e, h = case.shape
    x = inputs[0][part[0]]
    if x.numel() == 0 or 4 * s * e * e + s * s * e * (e // h) > MAX_WORK:
        return
    weights = inputs[1].double(), inputs[2].double()
    box = (slice(None), *part[1:])
    for mistake, *changed in _changes(*weights, case):
        value, limit = _truth(x, *changed)
        yield Variant(mistake, value[box], limit[box])
    _, limit = _truth(x, *weights, case)
    for mistake, value in _layers(inputs[0].double(), *weights, case):
        yield Variant(mistake, value[part], limit[box])


def _truth(x: torch.Tensor, w_qkv: torch.Tensor, w_out: torch.Tensor, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the layer's result for some batch entries, and its bound."""
    case = replace(case, dims=(("B", len(x)), *case.dims[1:]))
    value, limit = (torch.empty(x.shape, dtype=torch.float64, device=x.device) for _ in range(2))
    for piece in ops.get("multi_head_attention").truth((x, w_qkv, w_out), case):
        value[piece.index], limit[piece.index] = piece.value, piece.limit
    return value, limit


def _changes(w_qkv: torch.Tensor, w_out: torch.Tensor, case: Case) -> Iterator[ChangedLayer]:
    e, h = case.shape[2:]
    d = e // h
    q, k, v = w_qkv.view(3, e, e)
    yield "queries and keys were exchanged", torch.cat((k, q, v)), w_out, case
    yield "keys and values were exchanged", torch.cat((q, v, k)), w_out, case
    yield "queries and values were exchanged", torch.cat((v, k, q)), w_out, case
    yield "scores were not scaled", torch.cat((q * math.sqrt(d), k, v)), w_out, case
    yield "scores were scaled twice, by 1 / D", torch.cat((q / math.sqrt(d), k, v)), w_out, case
    yield "w_out was read transposed", w_qkv, w_out.mT, case
    yield "the product with w_out was left out", w_qkv, torch.eye(e, dtype=w_out.dtype, device=w_out.device), case
    if h > 1:
        yield "scores were scaled by 1 / sqrt(E), not by 1 / sqrt(D)", torch.cat((q / math.sqrt(h), k, v)), w_out, case
        by_head = w_qkv.view(h, 3, d, e).transpose(0, 1).reshape(3 * e, e)
        yield "w_qkv was read as q, k and v of one head after the other", by_head, w_out, case
        apart = w_qkv.view(3, d, h, e).transpose(1, 2).reshape(3 * e, e)
        yield "heads were interleaved in w_qkv", apart, w_out, case
        yield "heads were interleaved in w_out", w_qkv, w_out.view(e, d, h).transpose(1, 2).reshape(e, e), case
        one = replace(case, dims=(*case.dims[:3], ("H", 1)))
        yield "all heads were treated as one", torch.cat((q * math.sqrt(h), k, v)), w_out, one
        for name, gone in (("first", slice(0, d)), ("last", slice(e - d, e))):
            without = w_out.clone()
            without[:, gone] = 0.0
            yield f"the {name} head was left out", w_qkv, without, case
    causal = case.option("causal", False)
    other = ops.get("multi_head_attention").with_options(case, causal=not causal)
    yield "positions saw later ones" if causal else "positions did not see later ones", w_qkv, w_out, other


def _layers(
    x: torch.Tensor, w_qkv: torch.Tensor, w_out: torch.Tensor, case: Case
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield mistakes that no change of weights describes, with the result for all batch entries."""
    b, s, e, h = case.shape
    qkv = x @ w_qkv.T

    def result(qkv: torch.Tensor, shift: int = 0, overflow: float = math.inf, window: int = s) -> torch.Tensor:
        """Return attention's result, (B, H, S, D). shift: later positions that a causal mask leaves visible. window:
        the distance from which positions are left out."""
        q, k, v = qkv.view(*qkv.shape[:2], 3, h, e // h).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(e // h)
        if case.option("causal"):
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1 + shift)
            scores = scores.masked_fill(hidden, -math.inf)
        if window < s:
            distance = torch.arange(s, device=x.device)[:, None] - torch.arange(s, device=x.device)
            scores = scores.masked_fill(distance.abs() >= window, -math.inf)
        too_large = (scores > overflow).any(dim=-1, keepdim=True)
        return (torch.softmax(scores, -1) @ v).masked_fill_(too_large, math.nan)

    def merged(o: torch.Tensor) -> torch.Tensor:
        return o.transpose(1, 2).reshape(b, s, e)

    right = result(qkv)
    yield "heads were not merged: o was read as it is stored by heads", right.reshape(b, s, e) @ w_out.T
    yield "the maximum was not subtracted", merged(result(qkv, overflow=OVERFLOW)) @ w_out.T
    if case.option("causal"):
        yield "positions saw the one after them", merged(result(qkv, 1)) @ w_out.T
        yield "positions did not see themselves", merged(result(qkv, -1)) @ w_out.T
    elif b > 1:
        joined = result(qkv.view(1, b * s, 3 * e)).transpose(1, 2).reshape(b, s, e)
        yield "positions saw all batch entries", joined @ w_out.T
    for size in (each for each in WINDOWS if each < s):
        yield f"positions {size} and more places away were left out", merged(result(qkv, window=size)) @ w_out.T
    for kind in sixteen_bit_formats(case.dtype):
        if kind != case.dtype:
            yield f"q, k and v were rounded to {kind}", merged(result(rounded(qkv, kind))) @ w_out.T
            yield f"attention's result was rounded to {kind}", rounded(merged(right), kind) @ w_out.T
