"""The measurement of one case: warm-up, host times, energy, then rounds of samples."""

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
from suite.timing.host_times import dispatch_us, graph_us, idle_us, loop_calls
from suite.timing.inputs import FixedInputs, Inputs
from suite.timing.intervals import NoRecorderError, are_serial
from suite.timing.recorder import Recorder
from suite.timing.result import MIN_SAMPLES, SLOW_NS, CallRecord, Timing, best_vendor, timing
from suite.timing.stats import half_width, median, next_look, noise
from suite.timing.target import Target, target

CACHES = ("cold", "warm")
MIN_BUDGET_SHARE = 0.2
"""Least share of its budget that a call spends, however narrow its interval: power and clocks drift more slowly than a
few fast rounds can show."""
NOISE, PATIENCE = 0.05, 4.0
"""A call whose interval is wider than NOISE when its budget is spent goes on, up to PATIENCE times the budget."""
WARM_UP_NS = 20_000_000
"""Least warm-up time of a call."""
WORTH_JOULES = 1.5
"""The time of a call whose energy is measured, at most, relative to that of the fastest call: each takes 0.1 s."""
STATE_PERIOD_NS = 250_000_000
"""Time between two readings of clocks, power and temperature."""
NEVER = 2**31 - 1
"""Objects allocated before Python's garbage collector runs, while calls are timed."""
COLLECT_PERIOD_NS = 50_000_000
"""Time between two deliveries of records. Each takes one to two milliseconds, however few records there are."""


@dataclass(frozen=True)
class Call:
    """One implementation with its inputs bound."""

    name: str
    issue: Callable[[], object]
    """Starts the call and returns its result, which may not be ready."""
    wait: Callable[[Any], None]
    """Returns when that result is ready."""
    vendor: bool = False
    """Whether a vendor's library computes it: vs_best is relative to the fastest of these."""
    capture: Callable[[Callable[[], object], int], Callable[[], None] | None] | None = None
    """Captures so many calls into a CUDA graph and returns what replays it; None where that is not possible."""

    def run(self) -> None:
        self.wait(self.issue())

    def spans(self, clock: Callable[[], int]) -> tuple[float, float]:
        """Nanoseconds until one call returns, and until its result is ready."""
        start = clock()
        result = self.issue()
        issued = clock()
        self.wait(result)
        return issued - start, clock() - start

    def loop(self, count: int, clock: Callable[[], int]) -> float:
        """Nanoseconds until each of several calls returns, which are issued one after the other."""
        start = clock()
        result = self.repeat(count)
        issued = clock()
        self.wait(result)
        return (issued - start) / count

    def repeat(self, count: int) -> object:
        """Issue several calls; the result of the last."""
        result: object = None
        for _ in range(count):
            result = self.issue()
        return result


class Sampled:
    """A call as samples run it. The result is held until the sample is taken, whose time its release is not part of."""

    def __init__(self, call: Call, clock: Callable[[], int]) -> None:
        self.name, self._issue, self._wait, self._clock = call.name, call.issue, call.wait, clock
        self.result: object = None
        self.issue_us = 0.0
        """Time until the call returned."""

    def __call__(self) -> None:
        begin = self._clock()
        result = self.result = self._issue()
        self.issue_us = (self._clock() - begin) / 1000
        self._wait(result)


def measure(
    calls: Sequence[Call],
    *,
    device: Any,
    cache: str = "cold",
    budget_s: float = 0.1,
    interval: float = 0.005,
    max_noise: float = NOISE,
    seed: int | None = None,
    energy: bool = False,
    inputs: Inputs | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Time the calls of one case together.

    Args:
        calls: with distinct names, their results already checked.
        device: the `torch.device` they run on.
        cache: `cold` evicts the last-level cache before every sample; `warm` runs the call itself instead.
        budget_s: time for the samples of each call. It gets its minimum of samples even if that takes longer.
        interval: relative half width of the median's 95% interval at which a call takes no more samples.
        max_noise: a call whose interval is wider takes more samples than its budget allows, up to PATIENCE times.
        seed: of the order of calls within rounds; None for one from the operating system's randomness.
        energy: whether to measure joules.
        inputs: what changes the inputs between rounds and keeps results; None for calls whose inputs stay as they are.
        on_progress: called with the name of a call before it runs, so that the last name is the call that hangs.

    Returns:
        The `Timing` of each call, by name.

    Raises:
        RecorderError: the activity records are inconsistent.
        ValueError: invalid names, cache or device.
    """
    case = Measurement(calls, target(device), cache, seed, on_progress or (lambda name: None), inputs)
    return case.measure(budget_s, interval, energy, max_noise)


class Measurement:
    """The measurement of one case on one target. `measure` runs once."""

    def __init__(
        self,
        calls: Sequence[Call],
        target: Target,
        cache: str = "cold",
        seed: int | None = None,
        on_progress: Callable[[str], None] = lambda name: None,
        inputs: Inputs | None = None,
    ) -> None:
        names = [call.name for call in calls]
        if len(set(names)) != len(names):
            raise ValueError(f"measure: names of calls must differ; got {names}")
        if cache not in CACHES:
            raise ValueError(f"measure: cache must be one of {CACHES}; got {cache!r}")
        self.calls, self.target, self.cache, self.on_progress = calls, target, cache, on_progress
        self.inputs: Inputs = inputs or FixedInputs()
        self.random = random.Random(seed)
        self.records = {name: CallRecord() for name in names}
        self.states: list[hardware.State] = []
        self.read_at = 0

    def measure(self, budget_s: float, interval: float, energy: bool, max_noise: float = NOISE) -> dict[str, Timing]:
        """Warm-up and host times of every call, energy, then the recorded rounds. See the function `measure`."""
        with no_garbage_collection():
            # The calls of the energy measurement (0.1 s each) are part of the warm-up.
            more_follows = energy and self.target.energy_mj() is not None
            for call in self.calls:
                self.on_progress(call.name)
                self.records[call.name].cost_ns = self.warm_up(call, WARM_UP_NS // 4 if more_follows else WARM_UP_NS)
                if not self.target.on_host:
                    self.measure_host_times(call)
            if more_follows:
                self.measure_energy()
            recorder, reason = self.start_recorder()
            self.read_state()
            if recorder is not None:
                try:
                    reason = self.trial_samples(recorder) or reason
                    self.rounds(recorder, budget_s, interval, max_noise)
                finally:
                    recorder.stop()
            self.read_state()
        if self.target.on_host:
            self.latency_of_samples()
        best = self.best(max_noise)
        shared = {
            "recorder": recorder.name if recorder is not None else "wall",
            "recorder_reason": reason,
            "cache": self.cache,
        }
        limits = self.target.limits()
        return {
            name: timing(record, self.records[best] if best is not None else None, self.states, shared, limits)
            for name, record in self.records.items()
        }

    def warm_up(self, call: Call, least_ns: int) -> float:
        """Call until two successive times agree within 10%, at least three times and for `least_ns`.

        Ends after 0.1 s for times that never agree, and after 0.5 s and two calls for slow calls. Returns the shortest
        time in ns.
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
                self.on_progress(call.name)  # a slow call is not taken for a hanging one
            if count >= 2 and spent >= 500_000_000:
                return best
            if count >= 3 and spent >= (least_ns if steady else 100_000_000):
                return best

    def measure_host_times(self, call: Call) -> None:
        """Medians, untraced: of a call to an idle device, the cache as for samples; in a loop; in a CUDA graph."""
        record, clock, synchronize = self.records[call.name], self.target.clock, self.target.synchronize

        def prepare() -> None:
            if record.slow:
                self.on_progress(call.name)
            self.prepare(call, self.inputs.change)
            synchronize()

        record.dispatch_us, record.latency_us = idle_us(call, 1 if record.slow else 3, clock, prepare)
        if (count := loop_calls(record.cost_ns)) > 1:
            record.dispatch_us = dispatch_us(call, count, clock, synchronize)
            record.graph_us = graph_us(call, count, clock, synchronize)

    def latency_of_samples(self) -> None:
        """Where the calling thread is the device, a sample is the time from issue to result: the latency."""
        for record in self.records.values():
            if record.usable:
                record.latency_us, record.dispatch_us = median(record.device_us), median(record.issue_us)

    def measure_energy(self) -> None:
        """Joules of the calls that keep the device busy and are not slow beside the fastest one; the others are warmed
        up.

        A call that is ready before another could be issued leaves the device idle between calls: its power is mostly
        that of waiting.
        """
        records = self.records
        busy = [call for call in self.calls if self.keeps_busy(records[call.name])]
        most_ns = WORTH_JOULES * min((records[call.name].cost_ns for call in busy), default=0.0)
        busy = [call for call in busy if records[call.name].cost_ns <= most_ns]
        for call in self.calls:
            if call not in busy:
                self.warm_up(call, WARM_UP_NS)

        def start(call: Call, count: int) -> Callable[[], None]:
            self.on_progress(call.name)
            return partial(call.wait, call.repeat(count))

        loads = [(partial(start, call), self.records[call.name].cost_ns) for call in busy]
        for call, joules in zip(busy, joules_per_call(loads, self.target.energy_mj, self.target.clock), strict=True):
            self.records[call.name].joules = joules

    def keeps_busy(self, record: CallRecord) -> bool:
        """Whether calls back to back keep the device busy: one runs for longer than its issue takes."""
        if self.target.on_host or record.latency_us is None or record.dispatch_us is None:
            return True
        return record.latency_us > 2 * record.dispatch_us

    def start_recorder(self) -> tuple[Recorder | None, str]:
        """The started recorder (None if not available), and why it is not CUPTI's."""
        try:
            recorder = self.target.recorder()
            recorder.start()
        except NoRecorderError as error:
            return None, str(error)
        return recorder, "on a CPU the wall time of a call is its device time" if self.target.on_host else ""

    def trial_samples(self, recorder: Recorder) -> str:
        """Take one sample of each call and discard it: the first recorded launch also sets up tracing.

        The samples show whether kernels can be traced in the serialized mode. Returns an empty text if so, else why not
        and what that costs.
        """
        for call in self.calls:
            self.sample(recorder, call, self.inputs.change)
        self.collect(recorder)
        concurrent = [name for name, record in self.records.items() if not are_serial(record.activities)]
        for record in self.records.values():
            record.clear()
        if not concurrent:
            recorder.serialize_kernels()
            return ""
        return (
            f"kernels of {', '.join(concurrent)} overlap, or a graph launches them: all are traced as concurrent, "
            "which lengthens kernels of many blocks, by up to 5%"
        )

    def rounds(self, recorder: Recorder, budget_s: float, interval: float, max_noise: float) -> None:
        """Sample in rounds, in each of which every call that is not finished has one sample.

        A call is finished when its own interval is narrow enough or its own budget is spent; a slow call takes no time
        from the others. A call that is left out of a round is left out of all later ones, so that the i-th samples of
        two calls are always of the same round. The fastest vendor call takes part to the end.
        """
        active = [call for call in self.calls if not self.records[call.name].error]
        collected_at, count = self.target.clock(), 0
        while active:
            count += 1
            begin_round: Callable[[], None] | None = partial(self.inputs.begin_round, complete=self.all_in(active))
            for call in self.random.sample(active, len(active)):
                self.sample(recorder, call, begin_round)
                begin_round = None
            now = self.target.clock()
            if now - collected_at >= COLLECT_PERIOD_NS or count == MIN_SAMPLES:
                self.collect(recorder)
                collected_at = now
                active = self.unfinished(active, budget_s, interval, max_noise)
            if now - self.read_at >= STATE_PERIOD_NS:
                self.read_state()

    def unfinished(self, active: Sequence[Call], budget_s: float, interval: float, max_noise: float) -> list[Call]:
        """Those of `active` that need more samples, and the reference of their ratios."""
        for call in active:
            decide(self.records[call.name], budget_s, interval, max_noise)
        names = {call.name for call in active if not self.records[call.name].finished}
        best = self.best(max_noise)
        return [call for call in active if names and (call.name in names or call.name == best)]

    def best(self, max_noise: float) -> str | None:
        """The vendor call that ratios refer to."""
        return best_vendor(self.records, [call.name for call in self.calls if call.vendor], max_noise)

    def all_in(self, active: Sequence[Call]) -> bool:
        """Whether `active` has every call that can be timed."""
        return len(active) == sum(not record.error for record in self.records.values())

    def sample(self, recorder: Recorder, call: Call, change: Callable[[], None] | None) -> None:
        """One sample. `change` gives the inputs new values first; that is part of the preparation."""
        self.on_progress(call.name)
        begin, run, record = self.target.clock(), Sampled(call, self.target.clock), self.records[call.name]
        recorder.sample(call.name, partial(self.prepare, call, change), run)
        record.issue_us.append(run.issue_us)
        record.spent_ns += self.target.clock() - begin
        self.inputs.keep(call.name, run.result)

    def prepare(self, call: Call, change: Callable[[], None] | None) -> None:
        """New values for the inputs, then the state of the cache that the call shall find."""
        if change is not None:
            change()
        if self.cache == "cold":
            self.target.evict()
        else:
            self.inputs.run_on_other_values(call.run)

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


def decide(record: CallRecord, budget_s: float, interval: float, limit: float) -> None:
    """Set `stopped_by` of a call that needs no more samples. One noisier than `limit` gets up to PATIENCE budgets."""
    count, share = len(record.device_us), record.spent_ns / 1e9 / budget_s if budget_s else math.inf
    if record.finished or count < record.minimum:
        return
    if count >= record.look and share >= MIN_BUDGET_SHARE:
        record.look = next_look(count)
        if half_width(record.device_us) <= interval:
            record.stopped_by = "interval"
            return
    if share >= PATIENCE or (share >= 1 and noise(record.device_us) <= limit):
        record.stopped_by = "budget"


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Python's garbage collector, whose runs would count as time of a call, has no reason to run.

    It stays enabled: a call could tell by `gc.isenabled()` that it is timed.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEVER, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
