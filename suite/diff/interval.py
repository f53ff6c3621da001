"""Estimates on a logarithmic scale, and the arithmetic of their 95% intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """The logarithm of a speed or of a ratio of speeds. Its 95% interval reaches from `value - down` to `value + up`.

    `down` and `up` are infinite if there is no interval.
    """

    value: float
    down: float = math.inf
    up: float = math.inf

    @classmethod
    def from_interval(cls, value: float, low: float | None, high: float | None) -> Estimate:
        """The estimate of a positive number with the ends of its interval. Has no interval if an end is None or 0."""
        if not low or not high:
            return cls(math.log(value))
        return cls(math.log(value), math.log(value) - math.log(low), math.log(high) - math.log(value))

    @property
    def low(self) -> float:
        return self.value - self.down

    @property
    def high(self) -> float:
        return self.value + self.up

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.up, self.down)

    def __sub__(self, other: Estimate) -> Estimate:
        """Difference of two independent estimates: their arms add as squares (MOVER: Zou and Donner 2008)."""
        down, up = math.hypot(self.down, other.up), math.hypot(self.up, other.down)
        return Estimate(self.value - other.value, down, up)

    def blurred(self, arm: float) -> Estimate:
        """This estimate with a further independent error, which reaches `arm` to either side."""
        return Estimate(self.value, math.hypot(self.down, arm), math.hypot(self.up, arm))

    def scaled(self, factor: float) -> Estimate:
        """This estimate with an interval `factor` times as wide."""
        return Estimate(self.value, self.down * factor, self.up * factor)

    def spanning(self, other: Estimate) -> Estimate:
        """The interval that holds both intervals. The value is the one nearer to 0."""
        value = min(self.value, other.value, key=abs)
        return Estimate(value, value - min(self.low, other.low), max(self.high, other.high) - value)


def as_ratio(logarithm: float) -> float:
    """`exp` without overflow."""
    return math.exp(max(-700.0, min(700.0, logarithm)))
