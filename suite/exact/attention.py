"""Attention, its gradients and multi-head attention on float64 operands, with pairs as results.

Scores of some heads, or of some queries of one head, are computed at a time. NaN and infinities of values count as 0,
since a hidden one must not reach a result; the places that see one are not finite in float64 either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from suite.exact import functions
from suite.exact.double_double import BLOCK_ELEMENTS, DoubleDouble, concatenated, exactly
from suite.exact.products import product
from suite.numerics.masks import hidden


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None, window: int | None = None
) -> DoubleDouble:
    keys, values = (exactly(_per_query_head(each, q.shape[1])) for each in (k, v))
    return _attended(exactly(q.flatten(0, 1)), keys, values, causal=causal, sm_scale=sm_scale, window=window).view(
        *q.shape
    )


def _attended(
    q: DoubleDouble,
    k: DoubleDouble,
    v: DoubleDouble,
    *,
    causal: bool,
    sm_scale: float | None = None,
    window: int | None = None,
) -> DoubleDouble:
    """Return the results of heads (heads, S_q, D), with keys and values of their own."""
    if 0 in q.high.shape or 0 in k.high.shape:
        return _zeros(q.high)
    found, values = [], v.finite()
    for heads, rows in _blocks(q.high, k.high):
        p, _ = _weights(q[heads, rows], k[heads], rows.start, q.high.shape[1], causal, sm_scale, window)
        found.append(product(p, values[heads]).view(-1, v.high.shape[2]))
    return concatenated(found).view(*q.high.shape)


def attention_grad(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    *,
    causal: bool = False,
    sm_scale: float | None = None,
    window: int | None = None,
) -> tuple[DoubleDouble, DoubleDouble, DoubleDouble]:
    """The gradients; the query heads of a group add to those of their keys and values."""
    if 0 in q.shape or 0 in k.shape:
        return _zeros(q), _zeros(k), _zeros(k)
    queries, given = q.flatten(0, 1), do.flatten(0, 1)
    keys, values = (_per_query_head(each, q.shape[1]) for each in (k, v))
    scale, dq, of_keys, of_values = _scale(q, sm_scale), [], _zeros(keys), _zeros(keys)
    for heads, rows in _blocks(queries, keys):
        some_q, some_do = queries[heads, rows], given[heads, rows]
        p, unseen = _weights(exactly(some_q), exactly(keys[heads]), rows.start, q.shape[2], causal, sm_scale, window)
        dp = product(some_do, values[heads].mT)
        dp = dp if unseen is None else dp.masked_fill(unseen, 0.0)
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
        dq.append(product(ds, keys[heads]).view(-1, q.shape[3]))
        for total, pairs, rows_of in ((of_keys, ds, some_q), (of_values, p, some_do)):
            whole = total[heads] + product(pairs.mT, rows_of)
            total.high[heads], total.low[heads] = whole.high, whole.low
    by_group = (-1, q.shape[1] // k.shape[1], *k.shape[2:])
    dk, dv = (each.view(*by_group).sum(1).view(*k.shape) for each in (of_keys, of_values))
    return concatenated(dq).view(*q.shape), dk, dv


def multi_head_attention(x: Tensor, w_qkv: Tensor, w_out: Tensor, *, heads: int, causal: bool = False) -> DoubleDouble:
    batch, s, e = x.shape
    d = e // heads
    qkv = product(x.flatten(0, 1), w_qkv.T)
    parts = (qkv[:, start : start + e].view(batch, s, heads, d) for start in (0, e, 2 * e))
    q, k, v = (each.transposed(1, 2).view(batch * heads, s, d) for each in parts)
    o = _attended(q, k, v, causal=causal).view(batch, heads, s, d)
    return product(o.transposed(1, 2).view(batch * s, e), w_out.T).view(batch, s, e)


def _weights(
    q: DoubleDouble, k: DoubleDouble, start: int, queries: int, causal: bool, sm_scale: float | None, window: int | None
) -> tuple[DoubleDouble, Tensor | None]:
    """Return the softmax of the scores of queries from `start` on, and which keys they do not see, if there is a mask.

    A query that sees no key has weights of 0.
    """
    scores = product(q, k.mT) * _scale(q.high, sm_scale)
    if not causal:
        return functions.softmax(scores), None
    rows, keys = scores.high.shape[-2:]
    unseen = hidden(range(start, start + rows), range(keys), keys - queries, window, k.high.device)
    return functions.softmax(scores.masked_fill(unseen, -math.inf)).masked_fill(unseen, 0.0), unseen


def _scale(q: Tensor, sm_scale: float | None) -> DoubleDouble:
    """Return the factor of scores: the argument, or 1 / sqrt(D)."""
    one = exactly(torch.ones((), dtype=torch.float64, device=q.device))
    return one * sm_scale if sm_scale is not None else one / (one * float(max(q.shape[-1], 1))).sqrt()


def _per_query_head(operand: Tensor, heads: int) -> Tensor:
    """Return keys or values of all query heads (B H, S_k, D), NaN and infinities of values included."""
    group = heads // operand.shape[1] if operand.shape[1] else 1
    return operand.repeat_interleave(group, dim=1).flatten(0, 1)


def _blocks(q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield some heads with all their queries, or one head with some, whose scores are BLOCK_ELEMENTS."""
    heads, queries, keys = q.shape[0], q.shape[1], k.shape[1]
    some = max(1, BLOCK_ELEMENTS // (keys * queries))
    rows = max(1, min(queries, BLOCK_ELEMENTS // keys))
    for head in range(0, heads, some):
        for row in range(0, queries, rows):
            yield slice(head, head + some), slice(row, row + rows)


def _zeros(like: Tensor) -> DoubleDouble:
    return DoubleDouble(torch.zeros_like(like), torch.zeros_like(like))
