"""One measurement on a device in simulated time."""

from __future__ import annotations

from fakes.target import FakeTarget

from suite.core.least import Least
from suite.timing import Call
from suite.timing.sampling import Measurement


def run(target: FakeTarget, *calls: Call, cache: str = "cold", budget_s: float = 1.0, interval: float = 0.005, **more):
    rules = (interval, more.pop("noise", 0.05), more.pop("least", Least()))
    return Measurement(calls, target, cache, **more).measure(budget_s, *rules)
