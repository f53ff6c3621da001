"""Times calls in external processes on a CPU, by this process's clock and by bytes that this process has read.

A sample begins when the external process, until then stopped, may run, and ends when this process has copied the whole
result out of the shared memory. The inputs got their values and the cache was evicted while the process was stopped.
A result can therefore be computed neither before its sample nor after it. The process's own measurement of the call
counts within that span: it is at least the span less the cost of a sample without a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from suite.checking.calls import RefusedError
from suite.external import protocol as p
from suite.external.process import call_ns
from suite.timing.recorder import Sample
from suite.timing.sampling import Sampled

if TYPE_CHECKING:
    from suite.external.remote import SharedCase

EMPTY_WARM_UPS, EMPTY_SAMPLES, EMPTY_QUANTILE = 2, 9, 0.75
"""Samples without a call, and the quantile of their times that is the cost of a sample."""


class HostResults:
    """The results of samples, each copied out of its shared memory within its span."""

    def __init__(self, cases: Mapping[str, SharedCase]) -> None:
        self.names = tuple(cases)
        self.refusals: dict[str, str] = {}
        self._cases = cases
        self._copies = {name: torch.empty_like(case.result) for name, case in cases.items()}

    def take(self, name: str) -> None:
        """Copy the result of the latest sample of `name`."""
        self._copies[name].copy_(self._cases[name].result)

    def latest(self, name: str, result: object) -> torch.Tensor:
        if self.refusals[name]:
            raise RefusedError(self.refusals[name])
        return self._copies[name]

    def first(self, name: str, output: torch.Tensor) -> Callable[[], torch.Tensor]:
        def read() -> torch.Tensor:
            case = self._cases[name]
            delivered = case.process.ask(p.Deliver(name), p.Delivered)
            return case.result.clone() if not delivered.refusal else torch.zeros_like(case.result)

        return read


class HostRecorder:
    """Takes samples in the external processes that hold `cases`, by name. `costs_ns` are the costs of samples without a
    call. All these processes are stopped except while they make a call."""

    name = "wall"

    def __init__(self, cases: Mapping[str, SharedCase], costs_ns: Mapping[str, float], results: HostResults) -> None:
        self._cases, self._costs_ns, self._results = cases, costs_ns, results
        self._samples: list[Sample] = []

    def start(self) -> None:
        for case in self._cases.values():
            case.process.stop()

    def stop(self) -> None:
        for case in self._cases.values():
            case.process.stay_awake()

    def serialize_kernels(self) -> None: ...

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        """The external process makes the call of that name in place of `run`, which gets the time of its return."""
        prepare()
        begin = perf_counter_ns()
        sampled = self._cases[name].process.sample(p.Sample(name))
        self._results.take(name)
        span = perf_counter_ns() - begin
        self._cases[name].process.stop()
        self._results.refusals[name] = sampled.refusal
        if isinstance(run, Sampled):
            run.issue_us = min(sampled.issued_ns, span) / 1000
        self._samples.append(Sample(name, call_ns(sampled.ready_ns, span, self._costs_ns[name]) / 1000, None))

    def collect(self) -> list[Sample]:
        samples, self._samples = self._samples, []
        return samples


def empty_sample_ns(case: SharedCase, framework: str, evict: Callable[[], None]) -> float:
    """Measure a sample without a call, which has arrays of `framework`, in a process that has loaded no file.

    It hands out a result of the case's size that was there before.
    """
    process, copy, spans = case.process, torch.empty_like(case.result), []
    process.stop()
    for _ in range(EMPTY_WARM_UPS + EMPTY_SAMPLES):
        evict()
        begin = perf_counter_ns()
        process.sample(p.Sample("", framework))
        copy.copy_(case.result)
        spans.append(perf_counter_ns() - begin)
        process.stop()
    process.stay_awake()
    return sorted(spans[EMPTY_WARM_UPS:])[int(EMPTY_QUANTILE * EMPTY_SAMPLES)]
