"""The measurement of one case: warm-up, latency, energy, then rounds of samples until the medians are known."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from suite import hardware
from suite.timing.energy import joules_per_call
from suite.timing.intervals import NoRecorderError, one_by_one
from suite.timing.recorder import Recorder
from suite.timing.result import SLOW_NS, Record, Timing, best_vendor, timing
from suite.timing.stats import MIN_FOR_INTERVAL, half_width, median, next_look
from suite.timing.target import Target, target

CACHES = ("cold", "warm")
MIN_SHARE = 0.2
"""Part of the budget that is used before narrow intervals end the rounds: power and clocks drift more slowly than a few
fast rounds can show."""
WARM_UP_NS = 20_000_000
LATENCY_CALLS, LATENCY_NS = 20, 30_000_000
STATE_PERIOD_NS = 250_000_000
COLLECT_PERIOD_NS = 100_000_000
"""Records are delivered in batches: each delivery costs one to two milliseconds, however few they are."""


@dataclass(frozen=True)
class Call:
    """One implementation with its inputs bound."""

    name: str
    issue: Callable[[], object]
    """Starts the call and returns its result, ready or not."""
    wait: Callable[[Any], None]
    """Returns when that result is ready."""
    vendor: bool = False

    def run(self) -> None:
        self.wait(self.issue())


def measure(
    calls: Sequence[Call],
    *,
    device: Any,
    cache: str = "cold",
    budget_s: float = 1.0,
    interval: float = 0.005,
    seed: int = 0,
    energy: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Time one case's calls together on `device` (a `torch.device`), all of them known to be right.

    `budget_s` is shared by the calls and bounds the rounds, beyond the few samples that every call gets. `interval` is
    the relative half width of the medians' 95% intervals at which sampling stops. `seed` sets the order within rounds.
    `on_progress` is told the name of the call about to run, so that the last name told is the one that hangs. Raises
    `RecorderError` if the record cannot be trusted.
    """
    case = Measurement(calls, target(device), cache, seed, on_progress or (lambda name: None))
    return case.measure(budget_s, interval, energy)


class Measurement:
    """One case on one target. `measure` once."""

    def __init__(
        self,
        calls: Sequence[Call],
        target: Target,
        cache: str = "cold",
        seed: int = 0,
        on_progress: Callable[[str], None] = lambda name: None,
    ) -> None:
        names = [call.name for call in calls]
        if len(set(names)) != len(names):
            raise ValueError(f"measure: names of calls must differ; got {names}")
        if cache not in CACHES:
            raise ValueError(f"measure: cache must be one of {CACHES}; got {cache!r}")
        self.calls, self.target, self.cache, self.on_progress = calls, target, cache, on_progress
        self.order = random.Random(seed)
        self.records = {name: Record() for name in names}
        self.states: list[hardware.State] = []
        self.read_at = 0
        self.stopped_by = ""

    def measure(self, budget_s: float, interval: float, energy: bool) -> dict[str, Timing]:
        with no_garbage_collection():
            # Where energy can be measured, another 0.1 s of each call follows before anything is recorded.
            more_follows = energy and self.target.energy_mj() is not None
            for call in self.calls:
                self.on_progress(call.name)
                self.records[call.name].cost_ns = self.warm_up(call, WARM_UP_NS // 4 if more_follows else WARM_UP_NS)
                self.host_times(call)
            if energy:
                self.energy()
            recorder, reason = self.recorder()
            self.read_state()
            if recorder is not None:
                try:
                    reason = self.rehearse(recorder) or reason
                    self.rounds(recorder, budget_s, interval)
                finally:
                    recorder.stop()
            self.read_state()
        best = best_vendor(self.records, [call.name for call in self.calls if call.vendor])
        shared = {
            "recorder": recorder.name if recorder is not None else "wall",
            "recorder_reason": reason,
            "cache": self.cache,
            "stopped_by": self.stopped_by,
        }
        return {
            name: timing(record, self.records[best] if best is not None else None, self.states, shared)
            for name, record in self.records.items()
        }

    def warm_up(self, call: Call, least_ns: int) -> float:
        """The shortest time, in ns, of calls made until two in a row agree within a tenth: 3 and `least_ns` at least.

        Bounded for calls that never settle (0.1 s) and for slow ones (half a second, after two calls).
        """
        begin, previous, best, count = self.target.clock(), math.inf, math.inf, 0
        while True:
            start = self.target.clock()
            call.run()
            self.target.synchronize()
            now = self.target.clock()
            took, spent, count = now - start, now - begin, count + 1
            steady = abs(took - previous) <= 0.1 * took
            previous, best = took, min(best, took)
            if took > SLOW_NS:
                self.on_progress(call.name)  # a sign of life
            if count >= 2 and spent >= 500_000_000:
                return best
            if count >= 3 and spent >= (least_ns if steady else 100_000_000):
                return best

    def host_times(self, call: Call) -> None:
        """Latency and dispatch: medians over calls to an idle device, inputs warm, no tracing."""
        record = self.records[call.name]
        latency, dispatch = [], []
        least = 1 if record.slow else 3
        for _ in range(max(least, min(LATENCY_CALLS, int(LATENCY_NS / max(record.cost_ns, 1))))):
            if record.slow:
                self.on_progress(call.name)
            self.target.synchronize()
            start = self.target.clock()
            result = call.issue()
            issued = self.target.clock()
            call.wait(result)
            ready = self.target.clock()
            del result
            dispatch.append((issued - start) / 1000)
            latency.append((ready - start) / 1000)
        record.latency_us, record.dispatch_us = median(latency), median(dispatch)

    def energy(self) -> None:
        """Joules of every call, one after the other."""

        def start(call: Call, count: int) -> Callable[[], None]:
            self.on_progress(call.name)
            result: object = None
            for _ in range(count):
                result = call.issue()
            return partial(call.wait, result)

        loads = [(partial(start, call), self.records[call.name].cost_ns) for call in self.calls]
        for call, joules in zip(
            self.calls, joules_per_call(loads, self.target.energy_mj, self.target.clock), strict=True
        ):
            self.records[call.name].joules = joules

    def recorder(self) -> tuple[Recorder | None, str]:
        """The started recorder, or None, and why it is not CUPTI's."""
        try:
            recorder = self.target.recorder()
            recorder.start()
        except NoRecorderError as error:
            return None, str(error)
        return recorder, "on a CPU the wall time of a call is its device time" if self.target.on_host else ""

    def rehearse(self, recorder: Recorder) -> str:
        """One sample of each call that does not count: the first under a recorder also sets it up. And it shows whether
        kernels can be traced one at a time; if not, returns why, and what that costs, else an empty text.
        """
        for call in self.calls:
            self.sample(recorder, call)
        self.collect(recorder)
        concurrent = [name for name, record in self.records.items() if not one_by_one(record.activities)]
        for record in self.records.values():
            record.device_us, record.counts = [], []
        if not concurrent:
            recorder.one_at_a_time()
            return ""
        return (
            f"kernels of {', '.join(concurrent)} overlap, or a graph launches them: all are traced as concurrent, "
            "which lengthens kernels of many blocks, by up to 5%"
        )

    def rounds(self, recorder: Recorder, budget_s: float, interval: float) -> None:
        """Rounds until every median is known, or until the budget is spent and every call has its minimum.

        A call leaves only after the budget, with its minimum, and does not come back: its samples are those of the
        first rounds, so samples of two calls at one position are of one round.
        """
        begin, count, look = self.target.clock(), 0, MIN_FOR_INTERVAL
        collected_at = begin
        while True:
            now = self.target.clock()
            spent = (now - begin) / 1e9
            if spent >= budget_s or now - collected_at >= COLLECT_PERIOD_NS:
                self.collect(recorder)
                collected_at = now
                if count >= look and spent >= MIN_SHARE * budget_s:
                    look = next_look(count)
                    widths = [half_width(record.device_us) for record in self.records.values() if not record.error]
                    if all(width <= interval for width in widths):
                        self.stopped_by = "interval"
                        return
            active = [call for call in self.calls if self.wants_more(call, spent >= budget_s)]
            if not active:
                self.stopped_by = "budget"
                return
            for call in self.order.sample(active, len(active)):
                self.sample(recorder, call)
            count += 1
            if self.target.clock() - self.read_at >= STATE_PERIOD_NS:
                self.read_state()

    def wants_more(self, call: Call, spent: bool) -> bool:
        record = self.records[call.name]
        return not record.error and (not spent or len(record.device_us) < record.minimum)

    def sample(self, recorder: Recorder, call: Call) -> None:
        self.on_progress(call.name)
        recorder.sample(call.name, self.target.evict if self.cache == "cold" else call.run, call.run)

    def collect(self, recorder: Recorder) -> None:
        for sample in recorder.collect():
            record = self.records[sample.name]
            if sample.activities is None:
                record.device_us.append(sample.us)
            elif sample.activities:
                record.device_us.append(sample.us)
                record.counts.append(len(sample.activities))
                record.activities = sample.activities
            else:
                record.error = f"{recorder.name} saw no kernel, copy or fill of this call"

    def read_state(self) -> None:
        self.read_at = self.target.clock()
        state = self.target.state()
        if state is not None:
            self.states.append(state)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A collection in the middle of a latency sample would be counted as the call's."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
