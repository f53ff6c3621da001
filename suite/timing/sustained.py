"""Measures calls back to back: their time, clock, power and energy under a steady load.

A single call on an idle device runs at a high clock. Under a steady load, power and heat set the clock. The calls
rotate over sets of inputs that together exceed twice the last-level cache, so that no call finds its inputs there.

The energy counter integrates the board's power sensor. Some devices (A100, H100: arXiv 2312.02741) sample that sensor
only part of the time, which matters least for a steady load.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from suite import hardware
from suite.timing.call import Call
from suite.timing.stats import median, median_interval
from suite.timing.target import Target

SETTLE_NS = 150_000_000
"""Calls for so long before the window, in which power and clock settle and the size of a batch is found."""
WINDOW_NS = 2_000_000_000
"""The shortest time of calls back to back that is measured."""
MIN_BATCHES = 3
BATCH_NS = 25_000_000
"""The duration of a batch of calls. The host waits after each, which idles the device for some 20 us."""
READ_PERIOD_NS = 100_000_000
"""Time between two batches in which the device's state is read. Their times do not count: a reading takes 3 ms."""
UPDATE_TIMEOUT_NS = 1_000_000_000
"""Time limit for an update of the energy counter. Measured devices update it every 20 to 100 ms."""


@dataclass(frozen=True)
class Sustained:
    """The numbers of one call under a steady load. Each field is the column of `Row` with the same name."""

    sustained_us: float
    sustained_us_low: float | None
    sustained_us_high: float | None
    sustained_clock_mhz: float | None = None
    sustained_power_w: float | None = None
    sustained_temperature_c: float | None = None
    joules: float | None = None


class Update(NamedTuple):
    """An update of the energy counter: its time by the host's clock in ns, and the new value in millijoules."""

    at: float
    millijoules: int


def sustained(call: Call, target: Target, on_progress: Callable[[], None] = lambda: None) -> Sustained:
    """Measure `call`, each issue of which takes the next set of inputs, for at least WINDOW_NS.

    `on_progress` is called before each batch, so that a long measurement does not count as hanging.
    """
    return _Load(call, target, on_progress).measure()


class _Load:
    """Batches of calls back to back."""

    def __init__(self, call: Call, target: Target, on_progress: Callable[[], None]) -> None:
        self.call, self.target, self.on_progress = call, target, on_progress
        self.count, self.batch_ns = 1, 0.0
        self.states: list[hardware.State] = []

    def measure(self) -> Sustained:
        clock = self.target.clock
        self.settle()
        first = self.until_update()
        begin = read_at = clock()
        times: list[float] = []
        while clock() - begin < WINDOW_NS or len(times) < MIN_BATCHES:
            if clock() - read_at >= READ_PERIOD_NS:
                self.run(self.read_state)
                read_at = clock()
            else:
                times.append(self.run() / self.count / 1000)
        last = self.until_update() if first is not None else None
        us = median(times)
        low, high = median_interval(times) or (None, None)
        watts = (last.millijoules - first.millijoules) * 1e6 / (last.at - first.at) if first and last else None
        return Sustained(us, low, high, *self.device_state(watts), None if watts is None else watts * us / 1e6)

    def run(self, during: Callable[[], None] | None = None) -> float:
        """Run a batch and return its time in ns. `during` is called while the device works on it."""
        self.on_progress()
        begin = self.target.clock()
        if self.target.on_host:
            for _ in range(self.count):
                self.call.run()
        else:
            result = self.call.repeat(self.count)
            if during is not None:
                during()
            self.call.wait(result)
        self.batch_ns = self.target.clock() - begin
        return self.batch_ns

    def settle(self) -> None:
        """Run batches for SETTLE_NS, and let them grow to BATCH_NS."""
        begin = self.target.clock()
        while self.target.clock() - begin < SETTLE_NS:
            took = max(1.0, self.run())
            if took < BATCH_NS:
                self.count = min(8 * self.count, math.ceil(self.count * BATCH_NS / took))

    def read_state(self) -> None:
        state = self.target.state()
        if state is not None:
            self.states.append(state)

    def until_update(self) -> Update | None:
        """Run batches until the energy counter moves; None if there is none or it does not move.

        The update lies between two readings. They follow each other in the first half of each batch, so that the device
        is never idle.
        """
        clock, counter, found = self.target.clock, self.target.energy_mj, None
        before, at = counter(), clock()

        def watch() -> None:
            nonlocal at, found
            end = clock() + self.batch_ns / 2
            while found is None:
                now = counter()
                previous, at = at, clock()
                if now is not None and now != before:
                    found = Update((previous + at) / 2, now)
                elif at >= end:
                    return

        begin = clock()
        while before is not None and found is None and clock() - begin < UPDATE_TIMEOUT_NS:
            self.run(watch)
        return found

    def device_state(self, watts: float | None) -> tuple[float | None, float | None, float | None]:
        """Clock (median), power (by the energy counter, else the median of readings), and temperature (highest)."""

        def known(attribute: str) -> list[float]:
            return [value for state in self.states if (value := getattr(state, attribute)) is not None]

        clocks, powers = known("clock_sm_mhz"), known("power_w")
        power = watts if watts is not None else median(powers) if powers else None
        return median(clocks) if clocks else None, power, max(known("temperature_c"), default=None)
