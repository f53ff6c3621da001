"""Measures one case: warm-up, host times, then rounds of samples."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from suite import hardware
from suite.core.least import NOTHING_MORE, Least
from suite.timing.call import Call
from suite.timing.host_times import dispatch_us, graph_us, idle_us, loop_calls
from suite.timing.inputs import FixedInputs, Inputs
from suite.timing.intervals import NoRecorderError, are_serial
from suite.timing.recorder import Recorder
from suite.timing.result import LONG_NS, MIN_SAMPLES, SLOW_NS, CallRecord, Timing, best_vendor, timing
from suite.timing.stats import MIN_FOR_INTERVAL, half_width, median, next_evaluation, noise
from suite.timing.target import Target, target

CACHES = ("cold", "warm")
MIN_BUDGET_SHARE = 0.2
"""The smallest share of its budget that a call spends, however narrow its interval. A few fast rounds would miss the
slow drift of power and clocks."""
NOISE, MAX_BUDGETS = 0.05, 4.0
"""A call whose interval is still wider than NOISE when its budget is spent takes up to MAX_BUDGETS times the budget."""
WARM_UP_NS = 20_000_000
"""The shortest warm-up time of a call."""
STATE_PERIOD_NS = 250_000_000
"""Time between two readings of clocks, power and temperature."""
GC_THRESHOLD = 2**31 - 1
"""The garbage collector's thresholds while calls are timed: so many allocations that it does not run."""
COLLECT_PERIOD_NS = 50_000_000
"""Time between two deliveries of records. Each takes one to two milliseconds, however few records there are."""


class Sampled:
    """A call as samples run it. Keeps the result alive so that freeing it is not timed."""

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
    least: Least = NOTHING_MORE,
    seed: int | None = None,
    inputs: Inputs | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Time the calls of one case together.

    Args:
        calls: implementations with distinct names, whose results are already checked.
        device: the `torch.device` that they run on.
        cache: `cold` evicts the last-level cache before every sample; `warm` runs the call itself instead.
        budget_s: seconds for the samples of each call, which gets its minimum of samples even if that takes longer.
        interval: relative half width of the median's 95% interval at which a call takes no more samples.
        max_noise: a call whose interval is wider may take up to MAX_BUDGETS times its budget.
        least: the least time and number of samples of each call, even if its interval is narrow or its budget spent.
        seed: seed of the order of calls within rounds; None takes one from the operating system.
        inputs: changes the inputs between rounds and keeps results; None for inputs that never change.
        on_progress: called with the name of a call before it runs. If a call hangs, the last name is that call.

    Returns:
        The `Timing` of each call, by name.

    Raises:
        RecorderError: the activity records are inconsistent.
        ValueError: invalid names, cache or device.
    """
    case = Measurement(calls, target(device), cache, seed, on_progress or (lambda name: None), inputs)
    return case.measure(budget_s, interval, max_noise, least)


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

    def measure(
        self, budget_s: float, interval: float, max_noise: float = NOISE, least: Least = NOTHING_MORE
    ) -> dict[str, Timing]:
        """Warm up, measure host times, then record the rounds. See the function `measure`.

        Where the host is the device, calls have the threads of `hardware.native_threads_set` in every measurement.
        """
        with ExitStack() as settings:
            threads = settings.enter_context(hardware.native_threads_set()) if self.target.on_host else None
            settings.enter_context(no_garbage_collection())
            for call in self.calls:
                self.on_progress(call.name)
                self.records[call.name].cost_ns = self.warm_up(call, WARM_UP_NS)
                if not self.target.on_host:
                    self.measure_host_times(call)
            recorder, reason = self.start_recorder()
            self.read_state()
            if recorder is not None:
                try:
                    reason = self.trial_samples(recorder) or reason
                    self.rounds(recorder, budget_s, interval, max_noise, least)
                finally:
                    recorder.stop()
            self.read_state()
        if self.target.on_host:
            self.set_latency_from_samples()
        best = self.best(max_noise)
        shared = {
            "recorder": recorder.name if recorder is not None else "wall",
            "recorder_reason": reason,
            "cache": self.cache,
            "threads": threads,
        }
        limits = self.target.limits()
        return {
            name: timing(record, self.records[best] if best is not None else None, self.states, shared, limits)
            for name, record in self.records.items()
        }

    def warm_up(self, call: Call, least_ns: int) -> float:
        """Call until two successive times agree within 10%, at least three times and for `least_ns`.

        Ends after 0.1 s if the times never agree, after 0.5 s and two calls if calls are slow, and after two that agree
        if calls are long on a GPU. Returns the shortest time in ns.
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
                self.on_progress(call.name)  # so that a slow call does not count as hanging
            is_long = took > LONG_NS and not self.target.on_host
            if count >= 2 and (spent >= 500_000_000 or (is_long and steady)):
                return best
            if count >= 3 and spent >= (least_ns if steady else 100_000_000):
                return best

    def measure_host_times(self, call: Call) -> None:
        """Measure latency (idle device, cache as for samples), dispatch and graph time, without a recorder."""
        record, clock, synchronize = self.records[call.name], self.target.clock, self.target.synchronize

        def prepare() -> None:
            if record.slow:
                self.on_progress(call.name)
            self.prepare(call, self.inputs.change)
            synchronize()

        record.dispatch_us, record.latency_us = idle_us(call, 1 if record.long else 3, clock, prepare)
        if (count := loop_calls(record.cost_ns)) > 1:
            record.dispatch_us = dispatch_us(call, count, clock, synchronize)
            evict = self.target.evict if self.cache == "cold" else None
            record.graph_us = graph_us(call, count, clock, synchronize, evict)

    def set_latency_from_samples(self) -> None:
        """Set the latency of calls for which the calling thread is the device: it is the time of a sample."""
        for record in self.records.values():
            if record.usable:
                record.latency_us, record.dispatch_us = median(record.device_us), median(record.issue_us)

    def start_recorder(self) -> tuple[Recorder | None, str]:
        """Start the recorder. Returns it (None if not available), and the reason if it is not CUPTI's."""
        try:
            recorder = self.target.recorder()
            recorder.start()
        except NoRecorderError as error:
            return None, str(error)
        return recorder, "on a CPU the wall time of a call is its device time" if self.target.on_host else ""

    def trial_samples(self, recorder: Recorder) -> str:
        """Take one sample of each call and discard it, because the first recorded launch also sets up tracing.

        The samples show whether kernels can be traced in the serialized mode. Returns an empty text if so, else the
        reason and the loss of accuracy.
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

    def rounds(self, recorder: Recorder, budget_s: float, interval: float, max_noise: float, least: Least) -> None:
        """Sample in rounds. In each round every unfinished call has one sample.

        A call is finished when its own interval is narrow enough or its own budget is spent; a slow call takes no time
        from the others. A call that is left out of a round is left out of all later ones. The i-th samples of two calls
        are therefore always of the same round. The fastest vendor call takes part to the end.
        """
        active = [call for call in self.calls if not self.records[call.name].error]
        collected_at, count = self.target.clock(), 0
        while active:
            count += 1
            begin_round: Callable[[], None] | None = partial(self.inputs.begin_round, complete=self.is_complete(active))
            for call in self.random.sample(active, len(active)):
                self.sample(recorder, call, begin_round)
                begin_round = None
            now = self.target.clock()
            if now - collected_at >= COLLECT_PERIOD_NS or count == MIN_SAMPLES:
                self.collect(recorder)
                collected_at = now
                active = self.unfinished(active, budget_s, interval, max_noise, least)
            if now - self.read_at >= STATE_PERIOD_NS:
                self.read_state()

    def unfinished(
        self, active: Sequence[Call], budget_s: float, interval: float, max_noise: float, least: Least
    ) -> list[Call]:
        """The calls of `active` that need more samples, and the vendor call that their ratios refer to."""
        for call in active:
            record = self.records[call.name]
            if record.long and not self.target.on_host:
                decide_early(record, interval, least)
            decide(record, budget_s, interval, max_noise, least)
        names = {call.name for call in active if not self.records[call.name].finished}
        best = self.best(max_noise)
        return [call for call in active if names and (call.name in names or call.name == best)]

    def best(self, max_noise: float) -> str | None:
        """The vendor call that ratios refer to."""
        return best_vendor(self.records, [call.name for call in self.calls if call.vendor], max_noise)

    def is_complete(self, active: Sequence[Call]) -> bool:
        """True if `active` has every call that can be timed."""
        return len(active) == sum(not record.error for record in self.records.values())

    def sample(self, recorder: Recorder, call: Call, change: Callable[[], None] | None) -> None:
        """Take one sample. `change` first gives the inputs new values, as part of the preparation."""
        self.on_progress(call.name)
        begin, run, record = self.target.clock(), Sampled(call, self.target.clock), self.records[call.name]
        recorder.sample(call.name, partial(self.prepare, call, change), run)
        record.issue_us.append(run.issue_us)
        record.spent_ns += self.target.clock() - begin
        self.inputs.keep(call.name, run.result)

    def prepare(self, call: Call, change: Callable[[], None] | None) -> None:
        """Give the inputs new values, then bring the cache into the state that samples begin with."""
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


def decide(record: CallRecord, budget_s: float, interval: float, limit: float, least: Least = NOTHING_MORE) -> None:
    """Set `stopped_by` of a call that needs no more samples. Above the noise `limit` it gets MAX_BUDGETS budgets."""
    count, share = len(record.device_us), record.spent_ns / 1e9 / budget_s if budget_s else math.inf
    if record.finished or count < max(record.minimum, least.samples) or record.spent_ns < 1e9 * least.time_s:
        return
    if count >= record.evaluate_at and share >= MIN_BUDGET_SHARE:
        record.evaluate_at = next_evaluation(count)
        if half_width(record.device_us) <= interval:
            record.stopped_by = "interval"
            return
    if share >= MAX_BUDGETS or (share >= 1 and noise(record.device_us) <= limit):
        record.stopped_by = "budget"


def decide_early(record: CallRecord, interval: float, least: Least) -> None:
    """Set `stopped_by` of a long call that has fewer than its minimum of samples, if their interval is narrow."""
    enough = len(record.device_us) >= max(MIN_FOR_INTERVAL, least.samples) and record.spent_ns >= 1e9 * least.time_s
    if enough and not record.finished and half_width(record.device_us) <= interval:
        record.stopped_by = "interval"


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep Python's garbage collector from running, because its time would count as time of a call.

    It stays enabled, so that a call cannot see by `gc.isenabled()` that it is timed.
    """
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
