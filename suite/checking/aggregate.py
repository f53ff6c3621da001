"""Statistics over all results of a call, which show errors too small to be seen in a single result.

    scale   the errors' correlation with the truth: all results are too large by one factor
    mean    the average error: all results are too large by one amount
    spread  the root mean square error: results are rounded once more than they may be

An error is the difference between a result and the correctly rounded truth. The position of the truth
between two neighbours of the type is random, so the average of these differences is the average error before the last
rounding.
The rounding itself adds a variance of at most the smaller of `ulp |error|` and ulp^2 / 4.

Each statistic has its own deviation, from the operation's `Noise`, and refuses a right kernel with a probability of at
most FALSE_ALARM. Errors may be fully correlated within groups; `Noise.independent` is the number of groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from suite.numerics.bounds import MARGIN, deviations
from suite.numerics.formats import ulp
from suite.numerics.noise import sample
from suite.problem.truth import Truth

LEAST = 2.0**-900
"""Smallest variance of a result that counts: float64 cannot represent the squares of smaller ones."""
STATISTICS = 3
"""Statistics of a result."""


@dataclass
class Weighted:
    """A weighted sum of errors, and the sums that its bound needs."""

    total: float = 0.0
    systematic: float = 0.0
    common: float = 0.0
    """The sum's standard deviation if all errors are fully correlated."""
    variance: float = 0.0
    """The sum's variance if all errors are independent."""
    rounding: float = 0.0
    """The variance from the last rounding."""
    jump: float = 0.0
    """The largest change by one ulp of one result."""
    reference: float = 0.0
    """The value of the sum for an error of 1, in the unit of the statistic."""

    @classmethod
    def of(cls, weight: torch.Tensor, errors: Errors, reference: torch.Tensor) -> Weighted:
        """Return the sums for errors of these sizes, without the total."""
        size = weight.abs()
        return cls(
            systematic=float((size * errors.systematic).sum()),
            common=float((size * errors.variance.sqrt()).sum()),
            variance=float((weight.square() * errors.variance).sum()),
            rounding=float((weight.square() * errors.rounding).sum()),
            jump=float((size * errors.ulp).max()),
            reference=float((weight * reference).sum()),
        )

    def add(self, sums: Weighted, total: float) -> None:
        """Add the sums of a piece, and the weighted sum of its errors."""
        self.total += total
        for name in ("systematic", "common", "variance", "rounding", "reference"):
            setattr(self, name, getattr(self, name) + getattr(sums, name))
        self.jump = max(self.jump, sums.jump)

    def bound(self, independent: int, many: float) -> float:
        """Return the largest sum of right results. Bernstein's inequality covers few changes by one ulp."""
        variance = max(self.common**2 / max(independent, 1), self.variance) + self.rounding
        return MARGIN * (self.systematic + many * math.sqrt(variance) + many**2 / 3.0 * self.jump)


@dataclass
class Squares:
    """The sum of squared errors, and the sums that its bound needs.

    The unit is the square of a result's own deviation plus an ulp: all results count, those near 0 too, and a change by
    one ulp is at most 1.
    """

    total: float = 0.0
    expected: float = 0.0
    """From the errors before the last rounding."""
    largest: float = 0.0
    """The largest term of `expected`."""
    rounding: float = 0.0
    """From the last rounding."""
    count: int = 0

    @classmethod
    def of(cls, errors: Errors, unit: torch.Tensor) -> Squares:
        """Return the sums for errors of these sizes, without the total."""
        terms = (errors.variance + errors.systematic.square()) / unit
        rounding = float((errors.rounding / unit).sum())
        return cls(0.0, float(terms.sum()), float(terms.max()), rounding, terms.numel())

    def add(self, sums: Squares, total: float) -> None:
        """Add the sums of a piece, and the sum of its squared errors."""
        self.total += total
        self.expected += sums.expected
        self.largest = max(self.largest, sums.largest)
        self.rounding += sums.rounding
        self.count += sums.count

    def bound(self, independent: int, many: float) -> float:
        """Return the largest sum of right results: a sum of squares of normal errors in groups, and of changes by one
        ulp (Laurent and Massart 2000, Bernstein)."""
        group = max(self.expected / max(independent, 1), self.largest)
        before = (math.sqrt(self.expected) + many * math.sqrt(group)) ** 2
        return MARGIN**2 * (before + self.rounding + many * math.sqrt(self.rounding) + many**2 / 3.0)


@dataclass
class Errors:
    """The sizes of the errors of sampled results that are right; float64, one dimension.

    places: positions among the sampled results.
    """

    places: torch.Tensor
    nearest: torch.Tensor
    systematic: torch.Tensor
    variance: torch.Tensor
    rounding: torch.Tensor
    ulp: torch.Tensor
    truth: torch.Tensor


class Expected:
    """The sums that the statistics of a piece are compared with. Unless results are infinite, only the truth counts.

    Only the results at the positions `places` count. Their errors are differences from `nearest`.
    """

    def __init__(self, errors: Errors) -> None:
        self.places, self.nearest = errors.places, errors.nearest
        before = errors.variance + errors.systematic.square()
        squared = before + errors.rounding
        self.scale_weight, self.mean_weight = errors.truth / squared, squared.rsqrt()
        self.unit = before + errors.ulp.square()
        if self.is_empty:
            return
        self.scale = Weighted.of(self.scale_weight, errors, errors.truth)
        self.mean = Weighted.of(self.mean_weight, errors, squared.sqrt())
        self.squares = Squares.of(errors, self.unit)

    @property
    def is_empty(self) -> bool:
        return bool(self.places.numel() == 0)


@dataclass
class Aggregate:
    """The statistics of one result, from the pieces added so far."""

    scale: Weighted = field(default_factory=Weighted)
    mean: Weighted = field(default_factory=Weighted)
    squares: Squares = field(default_factory=Squares)
    independent: int = 0

    def add(self, piece: torch.Tensor, truth: Truth, dtype: str) -> None:
        """Add the sampled elements of a piece of the output, which lies on the device of its truth."""
        if truth.noise is None or truth.value.numel() == 0:
            return
        got = piece[sample(tuple(truth.value.shape), truth.value.device)].reshape(-1).double()
        expected = truth.expected.get(dtype)
        if expected is None:
            expected = truth.expected[dtype] = Expected(errors_of(truth, dtype))
        if not torch.isfinite(got[expected.places]).all():
            expected = Expected(errors_of(truth, dtype, torch.isfinite(got)))
        if expected.is_empty:
            return
        error = got[expected.places] - expected.nearest
        self.independent = truth.noise.independent
        self.scale.add(expected.scale, float((expected.scale_weight * error).sum()))
        self.mean.add(expected.mean, float((expected.mean_weight * error).sum()))
        self.squares.add(expected.squares, float((error.square() / expected.unit).sum()))

    def judge(self, results: int) -> tuple[float, str]:
        """Return the largest ratio of a statistic to its bound, and the reason if it is above 1.

        results: the number of results of the call, each of which has statistics.
        """
        if self.squares.count == 0:
            return 0.0, ""
        many = deviations(STATISTICS * results)
        found = []
        for kind, each, unit in (("scale", self.scale, "of their size"), ("mean", self.mean, "deviations")):
            bound, reference = each.bound(self.independent, many), max(each.reference, 2.0**-1000)
            direction = "large" if each.total > 0 else "small"
            words = f"all are {abs(each.total) / reference:.2g} {unit} too {direction} on average"
            ratio = abs(each.total) / bound if each.total else 0.0  # all weights are 0 if all truths are
            found.append((ratio, f"{kind}: {words}, at most {bound / reference:.2g} is right"))
        squares, bound = self.squares.total / self.squares.count, self.squares.bound(self.independent, many)
        words = f"the root mean square error is {math.sqrt(squares):.2g} of an ulp and a deviation"
        limit = math.sqrt(bound / self.squares.count)
        found.append(
            (
                math.sqrt(self.squares.total / bound) if self.squares.total else 0.0,
                f"spread: {words}, at most {limit:.2g} is right",
            )
        )
        ratio, reason = max(found)
        return ratio, reason if ratio > 1.0 else ""


def errors_of(truth: Truth, dtype: str, finite: torch.Tensor | None = None) -> Errors:
    """Return the errors of the sampled results for which a statistic holds.

    These are left out: infinities and NaN, results with no error before their rounding or one below LEAST, a truth
    halfway between two neighbours, and repetitions of a truth, since equal inputs give equal errors.

    finite: True for each sampled result that is finite; None if all are.
    """
    assert truth.noise is not None
    value = truth.value[sample(tuple(truth.value.shape), truth.value.device)].reshape(-1)
    systematic, variance = truth.noise.systematic, truth.noise.variance
    nearest, spacing = value.to(getattr(torch, dtype)).double(), ulp(value, dtype)
    before = systematic.square() + variance
    usable = torch.isfinite(nearest) & torch.isfinite(before) & (before > LEAST)
    usable &= (nearest - value).abs() != spacing / 2.0
    if finite is not None:
        usable &= finite
    value = torch.where(usable, value, math.nan)
    ordered, order = value.sort()
    usable &= torch.empty_like(usable).scatter_(0, order[1:], ordered.diff() != 0.0).scatter_(0, order[:1], True)
    rounding = torch.minimum(spacing * before.sqrt(), spacing.square() / 4.0)
    places = usable.nonzero().squeeze(1)
    kept = (nearest, systematic, variance, rounding, spacing, value)
    return Errors(places, *(each[places] for each in kept))
