"""Error bounds that the derivations of all operations share. Every tolerance is derived; none is tuned.

A bound follows from unit roundoffs, the length of the reduction and the magnitudes that enter it:

    MARGIN (systematic + deviations(count) sqrt(variance) + ulp / 2)

    ulp / 2     the rounding of the output to its type; nearly all of the bound of an elementwise operation.
    systematic  errors of one sign, which add up linearly: tensor cores truncate instead of rounding.
    variance    of errors of mean zero, whose sum grows as the square root of their number (Higham and Mary, "A new
                approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019). A rounding error is
                uniform within half a unit in the last place, at most u|x|: its variance is at most (u x)^2 / 3, and
                its tails, like those of sums of such errors, are no heavier than a normal distribution's.

With a probability of at most FALSE_ALARM, one of `count` outputs is more than `deviations(count)` standard deviations
off. A right kernel's error ratio is therefore at most 1 / MARGIN = 2/3; an error 1.5 times as large is wrong. A
worst-case bound grows as n instead of sqrt(n) and accepts tf32 as float32 from n = 4096 on; it is used where it is
smaller.

The bound of an operation is in its file in `suite/ops/`; docs/agreement.md has the derivations.
"""

from __future__ import annotations

import math

import torch

from suite.numerics.formats import DOUBLE, MIN_EXPONENT, half_smallest, ulp, unit_roundoff, working

MARGIN = 1.5
"""Safety factor on every bound."""
FALSE_ALARM = 1e-6
"""Probability that independent roundings take the largest error ratio of a right kernel's output to 1 / MARGIN. A ratio
above 1 is rarer. Sums with large partial sums are no more likely to exceed it (docs/agreement.md)."""
EXP_ULPS = 2.0
"""Largest error of an exponential, in ulps of float32 or float64 (CUDA C++ Programming Guide: expf 1, ex2.approx 2,
exp 1)."""
CHAIN = 4096
"""Longest chain of additions in float32 that a sum may have at any length; see `longest_chain`."""
LEAST_VARIANCE = 2.0**-1022
"""Least variance of a sum in float64: smaller ones are no float64 numbers. Errors below 2^-511 are not told apart."""
RSQRT_ULPS = 2.0
"""Largest error of a reciprocal square root, in ulps (CUDA C++ Programming Guide: rsqrtf 2, rsqrt 1; 1 / sqrtf less).
"""
MMA_DEPTH = {"tf32": 4, "float16": 8, "bfloat16": 8, "float8_e4m3fn": 16}
"""Products that a tensor core adds to its accumulator in one step, by type. The values are A100's, the smallest of all
GPUs with that type; float8 has half of Hopper's, since no other GPU's is known."""


def deviations(count: int) -> float:
    """Return the standard deviations that one of `count` rounding errors exceeds with probability FALSE_ALARM."""
    return math.sqrt(2.0 * math.log(2.0 * max(count, 1) / FALSE_ALARM))


def student_deviations(count: int, runs: int) -> float:
    """Return `deviations` for a standard deviation estimated from `runs` errors: Student's t has heavier tails."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(-stdtrit(runs, FALSE_ALARM / (2.0 * max(count, 1))))


def limit(error: torch.Tensor | float, value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the bound of a result with `error` before its rounding to `dtype`. value: the truth, float64."""
    bound = ulp(value, dtype).mul_(MARGIN / 2.0)
    return bound.add_(error, alpha=MARGIN) if isinstance(error, torch.Tensor) else bound.add_(MARGIN * error)


def rounding_limit(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the bound of an exact result, such as a sum of two, that is rounded once. Truncation exceeds it."""
    return limit(0.0, value, dtype)


def longest_chain(terms: int) -> int:
    """Return the additions, one after the other, that a good sum of `terms` numbers makes for its longest chain.

    Partial sums of sqrt(terms) numbers each, and the sum of these, are two chains. Up to CHAIN terms one chain is good.
    """
    return min(terms, max(CHAIN, 2 * math.isqrt(terms)))


def sum_variance(
    total: torch.Tensor,
    spread_squared: torch.Tensor,
    terms: int,
    depth: int | None,
    repeats: torch.Tensor | None = None,
    dtype: str = "float32",
) -> torch.Tensor:
    """Return the variance of the error of adding `terms` numbers, in any order, in the working type of `dtype`.

    total: the sums, float64. spread_squared: the sums of the squares of the terms. depth: products that a tensor core
    adds in one step; None for additions one by one. repeats: how many terms are equal (`suite/numerics/repeats.py`);
    None if they are all different.

    Numbers in no particular order have partial sums s_k = (k/n) total + a random walk that returns to 0, with steps of
    size spread / sqrt(n). Each rounding has a variance of (u s_k)^2 / 3. The mean square of the walk is spread^2 / 6;
    the bound uses spread^2, since a few of many walks are larger. Below the normal range the spacing is constant.

    Tensor cores add `depth` products at a time and truncate: s_k loses between 0 and 2u|s_k|. Such an error has the
    variance of a rounding, and a mean, whose sum (`sum_shift`) varies as the walk does.

    The errors of r equal terms add up as one, r times as large, and so do their steps: n / r roundings of r^2 times the
    variance, in a walk of r spread^2.
    """
    kind = working(dtype)
    u = unit_roundoff(kind)
    if repeats is not None:
        many = repeats.clamp(max=max(terms, 1))
        of_walk = sum_variance(total, spread_squared * many, terms, depth, None, dtype)
        return of_walk.mul_(many)
    shift_variance = (u * math.ceil(terms / depth)) ** 2 / 12.0 if depth is not None else 0.0
    variance = torch.addcmul(
        spread_squared * (terms * u**2 / 3.0 + shift_variance), total, total, value=terms * u**2 / 9.0
    )
    if kind == DOUBLE:
        return variance.add_(LEAST_VARIANCE)
    return variance.add_(spread_squared > 0, alpha=terms * half_smallest(kind) ** 2 / 3.0)


def largest_sum_error(spread_squared: torch.Tensor, terms: int, chain: int, dtype: str) -> torch.Tensor:
    """Return the worst-case error of a sum of `terms` numbers in chains of at most `chain` additions.

    Each rounding is at most u times the sum of the absolute values. The last one is left out.
    """
    kind = working(dtype)
    least = LEAST_VARIANCE if kind == DOUBLE else 0.0
    return (spread_squared.clamp(min=least) * terms).sqrt_().mul_(max(chain - 1, 0) * unit_roundoff(kind))


def sum_shift(total: torch.Tensor, terms: int, depth: int | None) -> torch.Tensor | float:
    """Return the mean error of truncated sums. Step k loses u s_k, on average half of u times the total."""
    if depth is None:
        return 0.0
    return total.abs() * (unit_roundoff("float32") * (math.ceil(terms / depth) + 1) / 2.0)


def truncation(terms: int, depth: int | None) -> float:
    """Return the relative systematic error of a sum on tensor cores; see `sum_shift`."""
    return unit_roundoff("float32") * (math.ceil(terms / depth) + 1) / 2.0 if depth else 0.0


def flushed(x: torch.Tensor, dtype: str, factor: float = 1.0) -> torch.Tensor:
    """Return a bound of the error if `factor` times x becomes 0 below the normal range of the working type."""
    return x.abs().clamp_(max=2.0 ** MIN_EXPONENT[working(dtype)] / factor)


def rounding_variance(
    value: torch.Tensor, dtype: str, exact: torch.Tensor | None = None, factor: float = 1.0
) -> torch.Tensor:
    """Return the variance of rounding `factor` times a value to 16 bits, over factor^2; 0 where `exact`."""
    error = (value.abs() * unit_roundoff(dtype)).clamp_(min=half_smallest(dtype) / factor)
    variance = error.square_().div_(3.0)
    return variance if exact is None else variance.masked_fill_(exact, 0.0)
