"""Error bounds of the gradients of softmax(q k^T) v: the pairs of queries and keys, and the sums over them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import torch

from suite.numerics.attention import exponential_variance
from suite.numerics.bounds import (
    MMA_DEPTH,
    deviations,
    flushed,
    limit,
    rounding_variance,
    sum_shift,
    sum_variance,
    truncation,
)
from suite.numerics.float8 import FLOAT8, sum_losses
from suite.numerics.formats import OUTPUT_DTYPES, is_narrow, unit_roundoff, working
from suite.numerics.repeats import marks, repeats

LOG_ERROR = 4.0
"""Error of a float32 logarithm, in unit roundoffs of its value plus 1 (CUDA C++ Programming Guide: lg2.approx)."""


FILLED = 256.0
"""Before they are rounded to float8 (at most 448), p, ds and o are scaled so that their limits become this number."""


@dataclass(frozen=True)
class Factors:
    """Numbers that p, ds and o are multiplied by before they are rounded to the type of the operands."""

    p: float = 1.0
    ds: float = 1.0
    o: float = 1.0


def float8_factors(v: torch.Tensor, do: torch.Tensor, scale_v: float, scale_do: float) -> Factors:
    """Return the `Factors` of a kernel that knows the largest numbers only from its operands, (heads, rows, D) float8.

    p is at most 1, and o at most the largest of v. |ds_ij| = p_ij (1 - p_ij) |dp_ij - the mean of the row's others| is
    at most 1/4 of twice the largest dp, which is at most the product of the longest rows of v and do. NaN is left out.
    """
    if not (v.numel() and do.numel()):
        return Factors(FILLED)
    v, do = (x.half().nan_to_num(0.0) for x in (v, do))
    rows = [float(torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32).amax()) for x in (v, do)]
    largest_ds = rows[0] * rows[1] * abs(scale_v * scale_do) / 2.0
    largest_o = float(v.abs().amax()) * abs(scale_v)
    ds, o = (FILLED / max(largest, 2.0**-126) for largest in (largest_ds, largest_o))
    return Factors(FILLED, ds, o)


@dataclass(frozen=True)
class Equal:
    """How many rows are equal: their errors are equal too and add up. Each field is 1, or (heads, 1, 1) for some
    heads."""

    keys: torch.Tensor
    """Rows of k and v."""
    queries: torch.Tensor
    """Rows of q and do, of all query heads of a key head."""
    features: torch.Tensor
    """Features of v and do, which the sum for delta has as terms."""


@cache
def once() -> Equal:
    """Return `Equal` of rows that all differ. It is no constant, which would load torch with this module."""
    return Equal(*[torch.ones((), dtype=torch.float64)] * 3)


def equal_in_head(query_marks: torch.Tensor, key_marks: torch.Tensor, v: torch.Tensor, do: torch.Tensor) -> Equal:
    """Return `Equal` of some key heads, from the marks of their rows: (key heads, group, S_q) and (key heads, S_k).

    v: (key heads, S_k, D). do: (key heads, group, S_q, D).
    """
    by_feature = (marks(v.mT, do.flatten(1, 2).mT), key_marks, query_marks.flatten(1))
    features, keys, queries = (repeats(each)[:, :, None] for each in by_feature)
    return Equal(keys, queries, features)


@dataclass
class Pairs:
    """Pairs of some queries (rows) with all keys of one head, float64: p, and ds = p (dp - delta) with dp = do v^T.

    The error of p_ij is p_ij (e_ij + e_i), that of ds_ij is ds_ij (e_ij + e_i) + p_ij (d_ij + d_i). The errors e and d,
    of pairs and of rows, are independent of each other.
    """

    p: torch.Tensor
    ds: torch.Tensor
    p_variance: torch.Tensor
    """Variance of p_ij e_ij, with the rounding to 16 bits."""
    ds_variance: torch.Tensor
    """Variance of ds_ij e_ij + p_ij d_ij, with the rounding to 16 bits."""
    exponent: torch.Tensor
    """Variance of e_i, (rows, 1)."""
    delta: torch.Tensor
    """Variance of d_i, (rows, 1)."""
    p_shift: torch.Tensor
    """Largest systematic error of p_ij."""
    ds_shift: torch.Tensor
    equal: Equal = field(default_factory=once)


def pairs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, hidden: torch.Tensor | None, scale: float,
    dtype: str, keys: int | None = None, factors: Factors | None = None, equal: Equal | None = None,
) -> Pairs:  # fmt: skip
    """Compute `Pairs` from rows of q and do and all of k and v, of one head or several. hidden: (rows, keys).

    keys: the number of keys that an implementation may sum, including hidden ones that are left out here. factors: of
    p, ds and o where they are rounded; given for float8. equal: see `Equal`; their errors add up in sums over them.

    1. Scores, their exponentials and so p are computed twice, for the output and again for the gradients, from one
       logarithm of the sum. The variance of p is therefore twice that in attention. The errors of the sum, of its
       logarithm and of the rounded value are common to a row.
    2. dp is a sum over D. delta, a row's sum of do o, has the errors of o: from p, from its rounding to the type of the
       operands, from the sum over the keys, and from the output's rounding. A kernel may compute it as a row's sum of
       p dp; it then has the error of the logarithm too.
    3. p and ds are rounded to the type of the operands before they enter a product; in 16 bits dp may be too.
    4. Tensor cores truncate: scores, dp and o are too small. Numbers below the normal range, also of scaled ds, may
       become 0.
       Float8 sums lose more (`sum_losses`): see `lose_float8`.
    """
    u, d, keys = unit_roundoff(working(dtype)), k.shape[-1], keys or k.shape[-2]
    depth, factors, equal = depth_of(dtype), factors or Factors(ds=min(scale, 1.0)), equal or once()
    scores = (q * scale) @ k.mT
    p, largest, log_sum = probabilities(scores, hidden)
    relative = exponential_variance(scores, (q * scale).square() @ k.square().mT, d, depth, dtype).mul_(2.0)
    relative.masked_fill_(exact := p == 0.0, 0.0)  # p is exactly 0, so it has no error

    dp = do @ v.mT
    if hidden is not None:
        dp.masked_fill_(hidden, 0.0)
    o, delta = p @ v, (p * dp).sum(dim=-1, keepdim=True)
    centred = dp - delta
    ds = p * centred

    squared = p.square()
    exponent = (squared * relative).sum(dim=-1, keepdim=True) * equal.keys
    exponent += sum_variance(torch.ones_like(delta), squared.sum(dim=-1, keepdim=True), keys, None, equal.keys, dtype)
    exponent += u**2 * (2.0 * (largest.square() + log_sum.square()) + LOG_ERROR**2 * (1.0 + (log_sum - largest) ** 2))
    p_variance = squared * relative
    dp_variance = sum_variance(dp, do.square() @ v.square().mT, d, depth, None, dtype)
    ds_variance = p_variance * centred.square() + squared * dp_variance
    o_variance = sum_variance(o, squared @ v.square(), keys, depth, equal.keys, dtype)
    if is_narrow(dtype):
        p_variance += rounding_variance(p, dtype, exact, factors.p)
        ds_variance += rounding_variance(ds, dtype, exact, factors.ds)
        if dtype != FLOAT8:
            ds_variance += squared * rounding_variance(dp, dtype)
        o_variance += rounding_variance(o, dtype, None, factors.o)
    delta_variance = (p_variance * centred.square()).sum(dim=-1, keepdim=True) * equal.keys + delta.square() * exponent
    delta_variance += (do.square() * o_variance).sum(dim=-1, keepdim=True) * equal.features
    for terms, count, times in ((do * o, d, equal.features), (p * dp, keys, equal.keys)):
        delta_variance += sum_variance(delta, terms.square().sum(dim=-1, keepdim=True), count, None, times, dtype)

    dot_truncation, key_truncation = truncation(d, depth), truncation(keys, depth)
    moved = (scores - (p * scores).sum(dim=-1, keepdim=True)).mul_(p)
    p_shift = moved.abs() * (u + dot_truncation)
    ds_shift = p_shift * centred.abs() + p * ((moved * dp).sum(dim=-1, keepdim=True).abs() * (u + dot_truncation))
    ds_shift += p * (dot_truncation * dp.abs() + key_truncation * (do * o).abs().sum(dim=-1, keepdim=True))
    p_shift += flushed(p, dtype)
    ds_shift += flushed(p, dtype) * centred.abs() + flushed(ds, dtype, min(scale, 1.0))
    found = Pairs(p, ds, p_variance, ds_variance, exponent, delta_variance, p_shift, ds_shift, equal)
    if dtype == FLOAT8:
        lose_float8(found, (q * scale, k, v, do), scores, dp, o, delta, keys, factors)
    return found


def probabilities(scores: torch.Tensor, hidden: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the softmax of scores, and for each row the largest score and the logarithm of the sum of exponentials.

    Hidden scores become -inf. All three are 0 for a row that sees no key.
    """
    if hidden is not None:
        scores.masked_fill_(hidden, -math.inf)
    largest = scores.amax(dim=-1, keepdim=True)
    unseen = torch.zeros_like(largest, dtype=torch.bool) if hidden is None else hidden.all(dim=-1, keepdim=True)
    p = torch.softmax(scores, dim=-1).masked_fill_(unseen, 0.0)
    log_sum = (largest - p.amax(dim=-1, keepdim=True).log_()).masked_fill_(unseen, 0.0)  # the largest p is 1 / the sum
    return p, largest.masked_fill_(unseen, 0.0), log_sum


def lose_float8(
    found: Pairs,
    operands: tuple[torch.Tensor, ...],
    scores: torch.Tensor,
    dp: torch.Tensor,
    o: torch.Tensor,
    delta: torch.Tensor,
    keys: int,
    factors: Factors,
) -> None:
    """Add the errors of float8: of scores, dp and o as sums on tensor cores, and of o's weights, which are rounded.

    operands: q, with the scale of the scores, k, v and do.

    1. A score loses up to e_ij, so p_ij changes by up to p_ij (e_ij + a row's sum of p e). Scores are computed twice.
    2. dp and o lose too. The loss of o, times do, is a loss of delta; so are the loss of p times dp, and that of dp
    times p.
    3. The weights of o are rounded, but their sum, the denominator, is not: roundings r change delta by a row's sum
       of r dp. `pairs` already counts the sum of r (dp - delta), which may be less.
    """
    q, k, v, do = operands
    p, d, squared = found.p, k.shape[-1], found.p.square()
    centred = dp - delta
    score_loss, score_variance = sum_losses(scores, q.square() @ k.square().mT, d, d)
    dp_loss, dp_variance = sum_losses(dp, do.square() @ v.square().mT, d, d)
    o_loss, o_variance = sum_losses(o, squared @ v.square(), keys, keys)

    score_variance.mul_(squared).mul_(2.0)
    found.p_variance += score_variance
    found.exponent += score_variance.sum(dim=-1, keepdim=True)
    found.ds_variance += score_variance * centred.square() + squared * dp_variance
    rounding = rounding_variance(p, FLOAT8, p == 0.0, factors.p)
    of_delta = score_variance * centred.square() + squared * dp_variance
    found.delta += of_delta.sum(dim=-1, keepdim=True) + (do.square() * o_variance).sum(dim=-1, keepdim=True)
    alone = (rounding * (dp.square() - centred.square())).sum(dim=-1, keepdim=True)
    found.delta += alone.clamp_(min=0.0)

    shift = p * (score_loss + (p * score_loss).sum(dim=-1, keepdim=True))
    found.p_shift += shift
    of_delta = (shift * centred.abs() + p * dp_loss).sum(dim=-1, keepdim=True)
    of_delta += (do.abs() * o_loss).sum(dim=-1, keepdim=True)
    found.ds_shift += shift * centred.abs() + p * (dp_loss + of_delta)


def depth_of(dtype: str) -> int | None:
    """Return the products that a tensor core adds to a float32 sum in one step. Float8 has `sum_losses` instead."""
    return None if dtype == FLOAT8 else MMA_DEPTH.get(dtype)


@dataclass
class Sum:
    """A sum over pairs and the terms of its bound; (rows, D) each, or (heads, rows, D)."""

    value: torch.Tensor
    variance: torch.Tensor
    shift: torch.Tensor
    squares: torch.Tensor
    """Sum of the squares of the terms."""
    repeated: torch.Tensor = field(default_factory=lambda: once().keys)
    """How many terms are equal. It enters `variance`."""

    def __iadd__(self, other: Sum) -> Sum:
        for name in ("value", "variance", "shift", "squares"):
            getattr(self, name).add_(getattr(other, name))
        return self

    def add_to(self, rows: slice, other: Sum) -> None:
        for name in ("value", "variance", "shift", "squares"):
            getattr(self, name)[:, rows] += getattr(other, name)

    def __getitem__(self, place: int) -> Sum:
        """Return the sum of one of several heads."""
        repeated = self.repeated[place] if self.repeated.ndim else self.repeated
        return Sum(self.value[place], self.variance[place], self.shift[place], self.squares[place], repeated)

    def errors(self, terms: int, dtype: str, parts: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the systematic error and the variance of a sum of `terms` terms.

        parts: sums of squares of the parts of a group, each of which may be rounded to 16 bits before they are added.
        With float8 the results may be rounded to float8 too, as cuDNN's are.
        """
        depth = depth_of(dtype)
        variance = self.variance + sum_variance(self.value, self.squares, terms, depth, self.repeated, dtype)
        if parts is not None and is_narrow(dtype):
            variance += parts * (unit_roundoff(OUTPUT_DTYPES.get(dtype, dtype)) ** 2 / 3.0)
        systematic = self.shift + sum_shift(self.value, terms, depth)
        if dtype == FLOAT8:
            lost, loss_variance = sum_losses(self.value, self.squares, terms, terms)
            systematic += lost
            variance += loss_variance + self.rounding_to_float8()
        systematic += self.value.abs() * (4.0 * unit_roundoff(working(dtype)))  # from the scale and products with it
        systematic += flushed(self.value, dtype)
        return systematic, variance

    def rounding_to_float8(self) -> torch.Tensor:
        """Return the variance of rounding the results to float8, after scaling them to its range."""
        largest = float(self.value.nan_to_num(0.0).abs().amax()) if self.value.numel() else 0.0
        return rounding_variance(self.value, FLOAT8, self.squares == 0.0, FILLED / max(largest, 2.0**-126))

    def limit(self, terms: int, count: int, dtype: str, parts: torch.Tensor | None = None) -> torch.Tensor:
        """Return the bound of a sum of `terms` terms, one of `count` results; see `errors`."""
        systematic, variance = self.errors(terms, dtype, parts)
        return limit(systematic + variance.sqrt_() * deviations(count), self.value, OUTPUT_DTYPES.get(dtype, dtype))


def sum_over_keys(p_ds: Pairs, k: torch.Tensor, scale: float) -> Sum:
    """Return dq = scale ds k."""
    value = p_ds.ds @ k
    variance = (p_ds.ds_variance @ k.square()).mul_(p_ds.equal.keys)
    variance += p_ds.exponent * value.square() + p_ds.delta * (p_ds.p @ k).square()
    squares = p_ds.ds.square() @ k.square()
    return Sum(value * scale, variance * scale**2, p_ds.ds_shift @ k.abs() * scale, squares * scale**2)


def sums_over_queries(p_ds: Pairs, q: torch.Tensor, do: torch.Tensor, scale: float) -> tuple[Sum, Sum]:
    """Return dk = scale ds^T q and dv = p^T do."""
    p_squared, ds_squared, times = p_ds.p.square(), p_ds.ds.square(), p_ds.equal.queries
    variance = ((p_ds.ds_variance + ds_squared * p_ds.exponent + p_squared * p_ds.delta).mT @ q.square()).mul_(times)
    squares = ds_squared.mT @ q.square()
    dk = Sum(p_ds.ds.mT @ q * scale, variance * scale**2, p_ds.ds_shift.mT @ q.abs() * scale, squares * scale**2)
    variance = ((p_ds.p_variance + p_squared * p_ds.exponent).mT @ do.square()).mul_(times)
    return dk, Sum(p_ds.p.mT @ do, variance, p_ds.p_shift.mT @ do.abs(), p_squared.mT @ do.square())


def empty_sum(shape: tuple[int, ...], repeated: torch.Tensor) -> Sum:
    """Return a sum of nothing, on the device of `repeated`."""
    value, variance, shift, squares = (
        torch.zeros(shape, dtype=torch.float64, device=repeated.device) for _ in range(4)
    )
    return Sum(value, variance, shift, squares, repeated)
