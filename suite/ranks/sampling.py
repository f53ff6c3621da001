"""Times the calls of one case on all ranks at once. A sample is the longest of its times over the ranks.

    new inputs | evict the cache | hosts meet | OPEN | gate, call | CLOSE

Before each sample the ranks wait for each other: their hosts, then, in front of the call's own work, their GPUs (the
gate: `Adapter.gate`). The gate's kernels come first in the span and are not counted. On a CPU only the hosts meet.
Rounds have the same length, order and inputs on all ranks, by random numbers that they share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.checking.calls import RefusedError, as_torch
from suite.checking.judge import judge
from suite.checking.memory import whole_storage
from suite.problem.outputs import joined
from suite.ranks import group
from suite.timing.budgets import BUDGETS_S, INTERVAL
from suite.timing.intervals import Activity, NoRecorderError, union_ns
from suite.timing.recorder import Recorder, Sample
from suite.timing.result import MIN_SAMPLES, CallRecord, Timing, best_vendor, timing
from suite.timing.stats import half_width, median
from suite.timing.target import Target, target

if TYPE_CHECKING:
    import torch

    from suite.frameworks.base import Adapter
    from suite.ranks.problem import RankProblem
    from suite.worker.protocol import TimeRequest

LATENCIES = 3
BATCH = MIN_SAMPLES
"""Rounds between two decisions whether to go on."""
MAX_ROUNDS = 200
JUDGED_ROUNDS = 3
"""Rounds of which the results are kept and judged."""
GATE = "gate"
DELAY_SHARE = 1.5
"""Delay of the gates relative to the longest time of a call: the host has queued the call when its work begins.

Otherwise kernels that wait for another rank would wait for its host.
"""


@dataclass(frozen=True)
class RankedCall:
    """A call to time: an implementation, or a part of the work alone, whose result is not judged.

    peak_bytes: the memory that it takes on this rank. rebind: called after the inputs have changed.
    """

    name: str
    issue: Callable[[], Any]
    adapter: Adapter
    is_vendor: bool = False
    is_part: bool = False
    peak_bytes: int | None = None
    rebind: Callable[[Sequence[torch.Tensor]], None] = lambda buffers: None

    def run(self) -> Any:
        """Call, and wait for the result."""
        result = self.issue()
        self.adapter.wait(result)
        return result


@dataclass(frozen=True)
class Found:
    """The times of each call, the same on all ranks; the faults of this rank's results, and how many it judged."""

    timings: Mapping[str, Timing]
    wrong: Mapping[str, str]
    judged: int


def measure(
    calls: Sequence[RankedCall], problem: RankProblem, request: TimeRequest, on_progress: Callable[[str], None]
) -> Found:
    """Time the calls on all ranks, which call this together."""
    rounds = Rounds(calls, problem, request, on_progress)
    for call in calls:
        rounds.take_latency(call)
    reason = rounds.sample_all()
    records = rounds.records
    best = best_vendor(records, [call.name for call in calls if call.is_vendor], request.max_noise)
    shared = {"recorder": rounds.recorder_name, "recorder_reason": reason, "cache": request.cache}
    timings = {
        name: timing(record, None if best is None else records[best], rounds.states, shared, rounds.target.limits())
        for name, record in records.items()
    }
    return Found(timings, rounds.judge(), len(rounds.kept))


@dataclass
class Kept:
    """A judged round: the seed of its inputs, and copies of its results."""

    seed: int
    results: dict[str, torch.Tensor] = field(default_factory=dict)


class Rounds:
    """Samples in rounds: in each, every call is sampled once, in a shuffled order."""

    def __init__(
        self,
        calls: Sequence[RankedCall],
        problem: RankProblem,
        request: TimeRequest,
        on_progress: Callable[[str], None],
    ) -> None:
        self.calls, self.problem, self.request, self.on_progress = calls, problem, request, on_progress
        self.target: Target = target(problem.device)
        self.random = group.shared_random()
        self.records = {call.name: CallRecord() for call in calls}
        self.states: list[hardware.State] = []
        self.kept: list[Kept] = []
        self.wrong: dict[str, str] = {}
        self.recorder_name = ""
        self._gates: dict[str, tuple[Callable[[], object], int]] = {}
        """By framework: the gate, and the number of activities that it causes."""

    # ----------------------------------------------------------------- samples

    def take_latency(self, call: RankedCall) -> None:
        """Set the host's time of one call: the longest over the ranks, the median of a few."""
        found = []
        for _ in range(LATENCIES):
            self.on_progress(call.name)
            self._prepare(call, partial(self._change, self.random.getrandbits(62)))
            begin = perf_counter()
            call.run()
            found.append(group.largest(perf_counter() - begin) * 1e6)
        self.records[call.name].latency_us = median(found)

    def sample_all(self) -> str:
        """Take the samples of all calls. Returns the reason if the recorder is not CUPTI's or there is none."""
        self._make_gates()
        recorder = self.target.recorder()
        problem = ""
        try:
            recorder.start()
        except NoRecorderError as error:
            problem = str(error)
        problems: list[str] = [each for each in group.gathered(problem) if each]
        if problems:
            return problems[0]
        self.recorder_name = recorder.name
        try:
            self._count_gates(recorder)
            self._rounds(recorder)
        finally:
            recorder.stop()
        return "on a CPU the wall time of a call is its device time" if self.target.on_host else ""

    def _make_gates(self) -> None:
        """Make the gates of all frameworks. Their own set-up is over before a recorder starts."""
        delay_us = DELAY_SHARE * max(record.latency_us or 0.0 for record in self.records.values())
        for adapter in {call.adapter.name: call.adapter for call in self.calls}.values():
            gate = (lambda: None) if self.target.on_host else adapter.gate(self.problem.device, delay_us)
            self._gates[adapter.name] = gate, 0
        self.target.synchronize()

    def _count_gates(self, recorder: Recorder) -> None:
        if self.target.on_host:
            return
        for name, (gate, _) in self._gates.items():
            for _ in range(3):
                recorder.sample(GATE, group.meet, partial(_pass, gate))
            self._gates[name] = gate, len(recorder.collect()[-1].activities or ())

    def _rounds(self, recorder: Recorder) -> None:
        """Sample in batches of rounds, until the intervals of all calls are narrow or the time is spent."""
        budget_s = BUDGETS_S[self.problem.device.type] * len(self.calls)
        begin, count, kept_at = perf_counter(), 0, sorted(self.random.sample(range(BATCH), JUDGED_ROUNDS))
        while count < MAX_ROUNDS:
            if (state := self.target.state()) is not None:
                self.states.append(state)
            for number in range(count, count + BATCH):
                self._round(recorder, keep=number in kept_at)
            count += BATCH
            self._add(recorder.collect())
            narrow = all(half_width(each.device_us) <= INTERVAL for each in self.records.values())
            spent_s = group.largest(perf_counter() - begin)
            if spent_s < self.request.least.time_s or count < self.request.least.samples:
                continue
            if narrow or spent_s > budget_s:
                break
        for record in self.records.values():
            record.stopped_by = "interval" if half_width(record.device_us) <= INTERVAL else "budget"

    def _round(self, recorder: Recorder, *, keep: bool) -> None:
        seed = self.random.getrandbits(62)
        if keep:
            self.kept.append(Kept(seed))
        change: Callable[[], None] = partial(self._change, seed)
        for call in self.random.sample(self.calls, len(self.calls)):
            self.on_progress(call.name)
            gate, _ = self._gates[call.adapter.name]
            results: list[Any] = []

            def run(call: RankedCall = call, gate: Callable[[], object] = gate, into: list[Any] = results) -> None:
                gate()
                into.append(call.run())

            recorder.sample(call.name, partial(self._prepare, call, change), run)
            change = _nothing
            if keep and not call.is_part:
                self._keep(call, results[0])

    def _prepare(self, call: RankedCall, change: Callable[[], None]) -> None:
        """Give the inputs new values, bring the cache into the state that samples begin with, and wait for the others.

        `change` is part of the preparation, since a recorder refuses work that lies outside its samples.
        """
        change()
        if self.request.cache == "cold":
            self.target.evict()
        else:
            call.run()
        self.target.synchronize()
        group.meet()

    def _change(self, seed: int) -> None:
        """Draw new inputs, in place."""
        for buffer, given in zip(self.problem.buffers, self.problem.draw(seed), strict=True):
            whole_storage(buffer).copy_(whole_storage(given))
        for call in self.calls:
            call.rebind(self.problem.buffers)

    def _add(self, samples: Sequence[Sample]) -> None:
        """Add samples to the records: the longest time of each over the ranks."""
        gates = {call.name: self._gates[call.adapter.name][1] for call in self.calls}
        mine = [(each.name, busy_us(each, gates[each.name])) for each in samples]
        for name, *times in zip((name for name, _ in mine), *group.gathered([us for _, us in mine]), strict=True):
            self.records[name].device_us.append(max(times))
        for each in samples:
            if each.activities is not None:
                own = _after(each.activities, gates[each.name])
                self.records[each.name].activities = own
                self.records[each.name].counts.append(len(own))

    # ----------------------------------------------------------------- results

    def _keep(self, call: RankedCall, result: Any) -> None:
        try:
            output = joined(as_torch(result, call.adapter, self.problem))
        except RefusedError as refused:
            self.wrong.setdefault(call.name, str(refused))
            return
        self.kept[-1].results[call.name] = output.clone()

    def judge(self) -> dict[str, str]:
        """The faults of the kept results of this rank, by name."""
        problem = self.problem
        for each in self.kept:
            truths = list(problem.truth_of(problem.case, each.seed, problem.draw(each.seed)))
            for name, output in each.results.items():
                verdict = judge(
                    output,
                    truths,
                    shape=problem.output_shape,
                    dtype=problem.output_dtype,
                    position=problem.position,
                    results=problem.results,
                )
                if not verdict.agrees:
                    self.wrong.setdefault(name, verdict.reason)
        return self.wrong


def _pass(gate: Callable[[], object]) -> None:
    gate()


def _nothing() -> None:
    """The inputs keep their values."""


def _after(activities: Sequence[Activity], gate: int) -> list[Activity]:
    """The activities without those of the gate, which come first."""
    return sorted(activities, key=lambda each: each.start)[gate:]


def busy_us(sample: Sample, gate: int) -> float:
    """The device's time of a sample without the gate."""
    if sample.activities is None:
        return sample.us
    own = _after(sample.activities, gate)
    return union_ns((each.start, each.end) for each in own) / 1000 if own else math.nan
