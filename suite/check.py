"""Agreement: is an output what float64 says, within what its arithmetic can be blamed for?

The only tolerance numbers of the tree are here, and each is derived: from unit roundoffs, the length of the reduction,
and the magnitudes that enter it. A bound has up to three parts:

1. The output is rounded once to its type: half a unit in the last place. `ROUNDING_ULPS` allows 0.75, so that a
   correctly
   rounded result has an error ratio of at most 2/3 and a truncated one is refused.
2. Rounding errors of inputs and of a sum's n partial sums are independent and of mean zero, so their total grows as
   sqrt(n), not n (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput.
   41, 2019). By Hoeffding's inequality a sum of independent errors |e_k| <= c_k exceeds t with a probability of at
   most 2 exp(-t^2 / (2 sum c_k^2)); `deviations(n)` solves that for n outputs and `FALSE_ALARM`. A worst-case bound
   grows as n and would let tf32 pass as float32 from n = 4096 on.
3. Tensor cores truncate when they add to the accumulator: an error of one sign for each step, which does grow as n.

Partial sums are bounded through the data: the inputs are drawn independently, so a partial sum is at most about
|c| + spread, where c is the result and spread = sqrt(sum of the squared terms).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

SIGNIFICANT_BITS = {"float32": 24, "tf32": 11, "float16": 11, "bfloat16": 8}
MIN_EXPONENT = {"float32": -126, "float16": -14, "bfloat16": -126}
MAX_FINITE = {name: torch.finfo(getattr(torch, name)).max for name in MIN_EXPONENT}

ROUNDING_ULPS = 0.75
FALSE_ALARM = 1e-9
"""Probability that one right kernel is refused in one comparison, over all elements of its output."""
EXP_ULPS = 2.0
"""Largest error of a float32 exponential (CUDA C++ Programming Guide: expf 1, ex2.approx 2 units in the last place)."""
MMA_DEPTH = 8
"""Least number of terms that a tensor core adds in one step (float32 inputs as tf32: 8; 16-bit inputs: 16)."""


@dataclass(frozen=True)
class Truth:
    """A piece of the exact result: where it lies in the output, its float64 value, the largest error allowed there."""

    index: tuple[slice, ...]
    value: torch.Tensor
    limit: torch.Tensor


@dataclass(frozen=True)
class Verdict:
    """`error_ratio` is the largest error over its bound: above 1 is wrong, infinite where NaN or shape differ."""

    agrees: bool
    error_ratio: float
    max_ulp: float
    max_rel: float
    reason: str = ""


def unit_roundoff(kind: str) -> float:
    """Largest relative error of rounding to nearest: float32 2^-24, float16 and tf32 2^-11, bfloat16 2^-8."""
    return 2.0 ** -SIGNIFICANT_BITS[kind]


def ulp(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Distance between neighbours of `dtype` at `value` (float64); the subnormal spacing below the normal range."""
    exponent = torch.frexp(value).exponent - 1
    exponent = torch.where(value == 0, MIN_EXPONENT[dtype], exponent).clamp(min=MIN_EXPONENT[dtype])
    return torch.ldexp(torch.ones_like(value), exponent - (SIGNIFICANT_BITS[dtype] - 1))


def deviations(count: int) -> float:
    """How many times sqrt(sum c_k^2) a sum of independent errors |e_k| <= c_k may reach in any of `count` outputs."""
    return math.sqrt(2.0 * math.log(2.0 * max(count, 1) / FALSE_ALARM))


def rounding_limit(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """One rounding to `dtype` of the exact result: all that an addition may lose."""
    return ulp(value, dtype) * ROUNDING_ULPS


def sigmoid_limit(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Bound for y = 1 / (1 + exp(-x)) computed in float32. value = y, float64.

    The exponential may err by EXP_ULPS, of at most 2^-23 each relative to it; y changes relatively by (1 - y) times
    that. The sum adds half a unit, 2^-24, and the quotient is rounded to `dtype`.
    """
    relative = (1.0 - value) * (EXP_ULPS * 2.0 * unit_roundoff("float32")) + unit_roundoff("float32")
    return value * relative + ulp(value, dtype) * ROUNDING_ULPS


def accumulation_limit(magnitude: torch.Tensor, terms: int, sigmas: float, *, tensor_cores: bool) -> torch.Tensor:
    """Error of adding `terms` products in float32, in any order, when partial sums stay within `magnitude`."""
    u = unit_roundoff("float32")
    limit = magnitude * (u * min(sigmas * math.sqrt(max(terms, 1)), max(terms, 1)))
    if tensor_cores:
        limit = limit + magnitude * (2.0 * u * math.ceil(terms / MMA_DEPTH))
    return limit


def matmul_limit(
    value: torch.Tensor, spread: torch.Tensor, terms: int, count: int, dtype: str, precision: str
) -> torch.Tensor:
    """Bound for c = sum over `terms` of a_k b_k. value = c, spread = sqrt(sum (a_k b_k)^2), both float64.

    Inputs are exact in ieee. In tf32 hardware may round each input to nearest or truncate it: an error in [-2u, 0] with
    u = 2^-11, that is a shift of every product towards zero (2u |c| for both inputs together), and a part of mean zero
    of at most 5u/4 for each of the two factors, since the shift itself depends on the significand. For a few terms the
    worst case, 4u |a||b| <= 4u sqrt(terms) spread, is smaller.
    """
    sigmas = deviations(count)
    tensor_cores = dtype != "float32" or precision == "tf32"
    limit = accumulation_limit(value.abs() + spread, terms, sigmas, tensor_cores=tensor_cores)
    if precision == "tf32":
        u = unit_roundoff("tf32")
        probable = 2.0 * u * value.abs() + sigmas * math.sqrt(2.0) * 1.25 * u * spread
        limit = limit + torch.minimum(probable, 4.0 * u * math.sqrt(terms) * spread)
    return limit + ulp(value, dtype) * ROUNDING_ULPS


def attention_limit(
    output: torch.Tensor,
    probability_square_sum: torch.Tensor,
    spread: torch.Tensor,
    value_norm: torch.Tensor,
    score_size: torch.Tensor,
    *,
    head_dim: int,
    keys: int,
    count: int,
    dtype: str,
) -> torch.Tensor:
    """Bound for o = sum_j p_j v_j with p = softmax(s), one row of queries a row. All float64.

    output o (..., S_q, D); probability_square_sum, sum_j p_j^2 (..., S_q, 1); spread = sqrt(sum_j p_j^2 v_j^2) (...,
    S_q, D); value_norm = sqrt(sum_j v_j^2) (..., 1, D) over all keys; score_size = max_j |s_j| + sqrt(sum_d (q_d
    k_jd)^2) scale (..., S_q, 1).

    A score errs by its own accumulation over D and by roundings of scale, maximum subtraction and exponential, each
    relative to the score; do = sum_j p_j ds_j (v_j - o). In 16 bits the probabilities are rounded to the type of v,
    before or after the division, relative to themselves above the subnormal range and by half its spacing within it.
    Then comes the accumulation of numerator and denominator over the keys, and the rounding of the output.
    """
    sigmas = deviations(count)
    half = dtype != "float32"
    centred = spread + output.abs() * probability_square_sum.sqrt()
    score_error = accumulation_limit(score_size, head_dim, sigmas, tensor_cores=half)
    score_error = score_error + score_size * (4.0 * unit_roundoff("float32")) + 4.0 * unit_roundoff("float32")
    limit = sigmas * score_error * centred
    if half:
        smallest = 2.0 ** (MIN_EXPONENT[dtype] - SIGNIFICANT_BITS[dtype])
        limit = limit + sigmas * (unit_roundoff(dtype) * spread + smallest * value_norm)
    limit = limit + accumulation_limit(output.abs() + spread, keys, sigmas, tensor_cores=half)
    return limit + ulp(output, dtype) * ROUNDING_ULPS


def compare(output: torch.Tensor, truths: Iterable[Truth], *, shape: tuple[int, ...], dtype: str) -> Verdict:
    """Judge `output` against the pieces of the truth.

    NaN and infinities must stand where the truth has them; a finite truth within its bound of the largest finite
    number of `dtype` may become an infinity of its sign. `max_ulp` counts units in the last place of `dtype` at the
    truth; `max_rel` is the largest error over the largest magnitude of the truth.
    """
    if not isinstance(output, torch.Tensor):
        return _refuse(f"the result is a {type(output).__name__}, not an array")
    if tuple(output.shape) != shape:
        return _refuse(f"the result has shape {tuple(output.shape)}, expected {shape}")
    if output.dtype != getattr(torch, dtype):
        return _refuse(f"the result is {str(output.dtype).removeprefix('torch.')}, expected {dtype}")
    ratio = max_ulp = max_error = max_truth = 0.0
    reason = ""
    for truth in truths:
        piece = output[truth.index].to(torch.float64)
        misplaced = _misplaced(piece, truth, dtype)
        if misplaced is not None:
            ratio, reason = math.inf, reason or misplaced
        finite = torch.isfinite(truth.value) & torch.isfinite(piece)
        if not bool(finite.any()):
            continue
        error = torch.where(finite, (piece - truth.value).abs(), 0.0)
        value = torch.where(finite, truth.value, 0.0)
        ratios = torch.where(finite, error / truth.limit, 0.0)
        worst = float(ratios.max())
        if worst > ratio:
            ratio = worst
            if worst > 1.0:
                reason = _describe(ratios, piece, truth)
        max_ulp = max(max_ulp, float((error / ulp(value, dtype)).max()))
        max_error = max(max_error, float(error.max()))
        max_truth = max(max_truth, float(value.abs().max()))
    max_rel = max_error / max_truth if max_truth > 0 else max_error
    return Verdict(ratio <= 1.0, ratio, max_ulp, max_rel, reason if ratio > 1.0 else "")


def _refuse(reason: str) -> Verdict:
    return Verdict(False, math.inf, math.inf, math.inf, reason)


def _misplaced(piece: torch.Tensor, truth: Truth, dtype: str) -> str | None:
    """The first element that is NaN or infinite where the truth is not, or the other way round."""
    value = truth.value
    may_overflow = torch.isfinite(value) & (value.abs() + truth.limit > MAX_FINITE[dtype])
    expected_infinite = torch.isinf(value) | (torch.isfinite(value) & (value.abs() - truth.limit > MAX_FINITE[dtype]))
    same_infinity = torch.isinf(piece) & (torch.sign(piece) == torch.sign(value))
    right = torch.where(
        torch.isnan(value),
        torch.isnan(piece),
        torch.where(expected_infinite, same_infinity, torch.isfinite(piece) | (may_overflow & same_infinity)),
    )
    if bool(right.all()):
        return None
    return _describe(~right, piece, truth)


def _describe(badness: torch.Tensor, piece: torch.Tensor, truth: Truth) -> str:
    flat = int(badness.to(torch.float64).argmax())
    where = [int(i) for i in torch.unravel_index(torch.tensor(flat), badness.shape)]
    got, expected, limit = (float(t.reshape(-1)[flat]) for t in (piece, truth.value, truth.limit))
    position = ", ".join(str(i + (s.start or 0)) for i, s in zip(where, truth.index, strict=True))
    return f"at [{position}] got {got:.9g}, expected {expected:.9g} +- {limit:.2g}"
