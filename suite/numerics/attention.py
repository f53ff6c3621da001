"""Error bounds of softmax(q k^T) v, for the operations that contain it."""

from __future__ import annotations

import math

import torch

from suite.numerics.bounds import EXP_ULPS, MMA_DEPTH, deviations, limit, sum_shift, sum_variance
from suite.numerics.float8 import FLOAT8, sum_losses
from suite.numerics.formats import OUTPUT_DTYPES, half_smallest, is_narrow, unit_roundoff, working


def exponential_variance(
    scores: torch.Tensor, sizes_squared: torch.Tensor, head_dim: int, depth: int | None, dtype: str
) -> torch.Tensor:
    """Return the relative variance of exp(score - largest score of the row), from the sum over D and roundings.

    scores (..., rows, keys): -inf where hidden, where it becomes 0. sizes_squared: sum over d of (scale q_d k_jd)^2.
    """
    u = unit_roundoff(working(dtype))
    below = scores.amax(dim=-1, keepdim=True) - scores
    scores.masked_fill_(scores == -math.inf, 0.0)  # p is 0 there; a score of -inf would give 0 times infinity
    relative = sum_variance(scores, sizes_squared, head_dim, depth, None, dtype)
    for rounded in (scores, below):
        relative.addcmul_(rounded, rounded, value=2.0 * u**2 / 3.0)
    return relative.add_((EXP_ULPS * 2.0 * u) ** 2 + u**2)


def attention_limit(
    value: torch.Tensor,
    p: torch.Tensor,
    scores: torch.Tensor,
    sizes_squared: torch.Tensor,
    v: torch.Tensor,
    *,
    head_dim: int,
    terms: int,
    count: int,
    dtype: str,
) -> torch.Tensor:
    """Return the bound for o = sum_j p_j v_j with p = softmax(scores), one query a row; see `attention_error`.

    count: outputs of the whole result. With float8, values are scaled and the output has another type.
    """
    systematic, variance = attention_errors(
        value, p, scores, sizes_squared, v, head_dim=head_dim, terms=terms, dtype=dtype
    )
    return limit(systematic + variance.sqrt() * deviations(count), value, OUTPUT_DTYPES.get(dtype, dtype))


def attention_errors(
    value: torch.Tensor,
    p: torch.Tensor,
    scores: torch.Tensor,
    sizes_squared: torch.Tensor,
    v: torch.Tensor,
    *,
    head_dim: int,
    terms: int,
    dtype: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the systematic error and the variance of o before its last rounding, with those of `float8_losses`."""
    if dtype == FLOAT8:
        lost, loss_variance = float8_losses(value, p, scores, sizes_squared, v, head_dim=head_dim, terms=terms)
    depth = None if dtype == FLOAT8 else MMA_DEPTH.get(dtype)
    moved, variance = attention_error(value, p, scores, sizes_squared, v, head_dim=head_dim, terms=terms, dtype=dtype)
    systematic = score_shift(head_dim, depth, dtype) * moved.abs()
    systematic += sum_shift(value, terms, depth) + value.abs() * (2.0 * unit_roundoff(working(dtype)))
    if dtype == FLOAT8:
        systematic += lost
        variance += loss_variance
    return systematic, variance


def float8_losses(
    value: torch.Tensor,
    p: torch.Tensor,
    scores: torch.Tensor,
    sizes_squared: torch.Tensor,
    v: torch.Tensor,
    *,
    head_dim: int,
    terms: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the errors of o from tensor-core sums of float8 products: the systematic error and the variance.

    Each sum is one chain. Arguments are those of `attention_error`. A systematic error e_j of the scores changes o by
    sum_j p_j (v_j - o) e_j, whose square is at most sum_j p_j e_j^2 times sum_j p_j (v_j - o)^2.
    """
    hidden = scores == -math.inf
    shift, variance = sum_losses(scores.masked_fill(hidden, 0.0), sizes_squared, head_dim, head_dim)
    weights = variance.mul_(p.square()).masked_fill_(hidden, 0.0)
    v_squared = v.square()
    score_variance = weights @ v_squared + value * (value * weights.sum(dim=-1, keepdim=True) - 2.0 * (weights @ v))
    spread = (p @ v_squared - value.square()).clamp_(min=0.0)
    systematic = (spread * shift.square_().mul_(p).masked_fill_(hidden, 0.0).sum(dim=-1, keepdim=True)).sqrt_()
    lost, sum_variance_lost = sum_losses(value, p.square() @ v_squared, terms, terms)
    return systematic + lost, score_variance.clamp(min=0.0) + sum_variance_lost


def score_shift(head_dim: int, depth: int | None, dtype: str) -> float:
    """Return the relative systematic error of a score, from the factor log2(e) sm_scale and truncated sums."""
    u = unit_roundoff(working(dtype))
    return u + u * (math.ceil(head_dim / depth) + 1) / 2.0 if depth else u


def attention_error(
    value: torch.Tensor,
    p: torch.Tensor,
    scores: torch.Tensor,
    sizes_squared: torch.Tensor,
    v: torch.Tensor,
    *,
    head_dim: int,
    terms: int,
    dtype: str,
    score_variance: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how o = sum_j p_j v_j changes if all scores grow by the same factor (a derivative), and the variance of o.

    p = softmax(scores), one query a row. All tensors are float64, and may have equal leading dimensions. value: o
    (rows, D). p (rows, keys): probabilities. scores (rows, keys): -inf where hidden; overwritten. sizes_squared (rows,
    keys): sum over d of (scale q_d k_jd)^2. v (keys, D). terms: all keys, hidden ones too. score_variance (rows, keys):
    variances of the scores from errors of k.

    1. Errors of a score come from its sum over D, from rounding the scaled score and its distance from the largest, and
       from the exponential. Together they give p_j a relative variance w_j. Since do = sum_j p_j (v_j - o) e_j, the
       variance of o is sum_j p_j^2 w_j (v_j - o)^2. The factor log2(e) sm_scale is rounded too, which gives all keys
       the same relative error: e_j = u s_j.
    2. In 16 bits, p_j is rounded to the type of v: it changes by r_j p_j, or by half the spacing of subnormal numbers.
       If only the numerator has the rounded p_j, o changes by sum_j r_j p_j v_j; if the denominator has it too, by
       sum_j r_j p_j (v_j - o). Float8 divides p_j by the largest of its row first: normal numbers begin at 2^-6.
    3. Numerator and denominator are sums over the keys; the quotient may be a product with a reciprocal.

    Memory bandwidth limits this function, so arrays of all pairs are reused, and read as few times as possible.
    """
    depth = None if dtype == FLOAT8 else MMA_DEPTH.get(dtype)
    hidden = scores == -math.inf
    v_squared, p_squared = v.square(), p.square()
    relative = exponential_variance(scores, sizes_squared, head_dim, depth, dtype)
    if score_variance is not None:
        relative += score_variance
    weights = relative.mul_(p_squared).masked_fill_(hidden, 0.0)
    scaled = scores.mul_(p)
    moved = scaled @ v - value * scaled.sum(dim=-1, keepdim=True)

    alone = torch.zeros_like(value)
    if is_narrow(dtype):
        least: torch.Tensor | float = half_smallest(dtype)
        if dtype == FLOAT8:  # relative to the row's largest, which is 1 or more when it is rounded
            least = least * p.amax(dim=-1, keepdim=True)
        rounding = torch.maximum(p * unit_roundoff(dtype), torch.as_tensor(least, dtype=p.dtype, device=p.device))
        rounding.square_().div_(3.0).masked_fill_(hidden, 0.0)
        weights += rounding
        alone = value * (2.0 * (rounding @ v) - value * rounding.sum(dim=-1, keepdim=True))
    variance = weights @ v_squared + value * (value * weights.sum(dim=-1, keepdim=True) - 2.0 * (weights @ v))
    variance = variance.clamp(min=0.0) + alone.clamp(min=0.0)

    variance += sum_variance(value, p_squared @ v_squared, terms, depth, None, dtype)
    ones, spread_squared = torch.ones_like(value[:, :1]), p_squared.sum(dim=-1, keepdim=True)
    denominator_variance = sum_variance(ones, spread_squared, terms, None, None, dtype)
    variance += value.square() * denominator_variance
    return moved, variance
