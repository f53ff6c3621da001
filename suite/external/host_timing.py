"""Times calls in external processes on a CPU, by this process's clock and by bytes that this process has read.

A sample begins when the external process, until then stopped, may run, and ends when this process has copied the whole
result out of the shared memory. The inputs got their values and the cache was evicted while the process was stopped.
A result can therefore be computed neither before its sample nor after it. The process's own measurement of the call
counts within that span, with what its samples usually take longer than samples without a call. These are taken in
between, in a process that has loaded no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from suite.checking.calls import RefusedError
from suite.external import protocol as p
from suite.external.process import check_claim
from suite.timing.recorder import Sample
from suite.timing.sampling import Sampled
from suite.timing.stats import median

if TYPE_CHECKING:
    from suite.external.remote import SharedCase

EMPTY_WARM_UPS, EMPTY_SAMPLES, EMPTY_QUANTILE = 2, 9, 0.75
"""Samples without a call before a measurement, and the quantile of their times that one sample is allowed."""
EMPTY_PERIOD = 3
"""One sample in so many has a sample without a call before it, since their cost varies with the machine's load."""


class HostResults:
    """The results of samples, each copied out of its shared memory within its span."""

    def __init__(self, cases: Mapping[str, SharedCase]) -> None:
        self.names = tuple(cases)
        self.refusals: dict[str, str] = {}
        self.keeps = False
        self._cases = cases
        self._copies = {name: torch.empty_like(case.result) for name, case in cases.items()}

    def take(self, name: str) -> None:
        """Copy the result of the latest sample of `name`."""
        self._copies[name].copy_(self._cases[name].result)

    def latest(self, name: str, result: object) -> torch.Tensor:
        if self.refusals[name]:
            raise RefusedError(self.refusals[name])
        return self._copies[name]

    def held(self, name: str, output: torch.Tensor) -> Callable[[], torch.Tensor]:
        def read() -> torch.Tensor:
            case = self._cases[name]
            delivered = case.process.ask(p.Deliver(name), p.Delivered)
            return case.result.clone() if not delivered.refusal else torch.zeros_like(case.result)

        return read


class EmptySamples:
    """Samples without a call, with arrays of `framework`, in the process of `case`, which has loaded no file.

    They hand out a result of the case's size that was there before. `spans` are the times of earlier ones, in ns.
    """

    def __init__(self, case: SharedCase, framework: str, evict: Callable[[], None], spans: list[float]) -> None:
        self._process, self._framework, self._evict, self.spans = case.process, framework, evict, spans
        self._from, self._to = case.result, torch.empty_like(case.result)

    def begin(self) -> None:
        """Take the samples before a measurement, unless there are earlier ones."""
        if self.spans:
            return
        self._process.stop()
        for _ in range(EMPTY_WARM_UPS + EMPTY_SAMPLES):
            self.take()
        del self.spans[:EMPTY_WARM_UPS]
        self._process.stay_awake()

    def take(self) -> None:
        """Take one, while the process is stopped."""
        self._evict()
        begin = perf_counter_ns()
        self._process.sample(p.Sample("", self._framework))
        self._to.copy_(self._from)
        self.spans.append(perf_counter_ns() - begin)
        self._process.stop()

    @property
    def middle_ns(self) -> float:
        return median(self.spans)

    @property
    def largest_ns(self) -> float:
        """The cost that a single sample is allowed."""
        return sorted(self.spans)[int(EMPTY_QUANTILE * len(self.spans))]


class HostRecorder:
    """Takes samples in the external processes that hold `cases`, by name, and samples without a call in between.

    `empty` are these, by name. All these processes are stopped except while they make a call.
    """

    name = "wall"

    def __init__(
        self, cases: Mapping[str, SharedCase], empty: Mapping[str, EmptySamples], results: HostResults
    ) -> None:
        self._cases, self._empty, self._results = cases, empty, results
        self._taken: list[tuple[str, float, float]] = []
        """Name, claimed time and span of each sample since the last `collect`."""
        self._unclaimed: dict[str, list[float]] = {name: [] for name in cases}
        """The part of each span that the process did not claim."""
        self._count = 0

    def start(self) -> None:
        for case in self._cases.values():
            case.process.stop()

    def stop(self) -> None:
        for case in self._cases.values():
            case.process.stay_awake()

    def serialize_kernels(self) -> None: ...

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        """The external process makes the call of that name in place of `run`, which gets the time of its return."""
        if self._count % EMPTY_PERIOD == 0:
            self._empty[name].take()
        self._count += 1
        prepare()
        self._cases[name].process.expect_still()
        begin = perf_counter_ns()
        sampled = self._cases[name].process.sample(p.Sample(name, keep=self._results.keeps))
        self._results.take(name)
        span = perf_counter_ns() - begin
        self._cases[name].process.stop()
        self._results.refusals[name] = sampled.refusal
        if isinstance(run, Sampled):
            run.issue_us = min(sampled.issued_ns, span) / 1000
        check_claim(sampled.ready_ns, span)
        self._taken.append((name, sampled.ready_ns, span))
        self._unclaimed[name].append(span - sampled.ready_ns)

    def collect(self) -> list[Sample]:
        taken, self._taken = self._taken, []
        return [Sample(name, self._call_ns(name, claimed, span) / 1000, None) for name, claimed, span in taken]

    def _call_ns(self, name: str, claimed: float, span: float) -> float:
        """The time of a call: the claim, and what samples of that name usually take longer than ones without a call.

        It is at least the span less the largest cost of a sample without a call.
        """
        empty = self._empty[name]
        late = max(0.0, median(self._unclaimed[name]) - empty.middle_ns)
        return max(claimed + late, span - empty.largest_ns)
