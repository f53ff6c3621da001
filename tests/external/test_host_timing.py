"""Samples in external processes on a CPU, on a process that answers by a script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.checking.calls import RefusedError
from suite.external import host_timing
from suite.external import protocol as p
from suite.external.host_timing import HostRecorder, HostResults, empty_sample_ns
from suite.external.process import RaisedError, call_ns
from suite.timing.recorder import Sample


class Case:
    """A case whose process notes its commands, and writes the number of the command into the result."""

    def __init__(self, clock: list[int], took_ns: int, sampled: p.Sampled) -> None:
        self.result, self.log = torch.zeros(3), []  # type: ignore[var-annotated]
        self._clock, self._took_ns, self._sampled = clock, took_ns, sampled
        self.process = SimpleNamespace(
            stop=lambda: self.log.append("stop"), stay_awake=lambda: self.log.append("awake"), sample=self._sample
        )

    def _sample(self, command: p.Sample) -> p.Sampled:
        self.log.append(command)
        self._clock[0] += self._took_ns
        self.result.fill_(len(self.log))
        return self._sampled


@pytest.fixture
def clock(monkeypatch: Any) -> list[int]:
    now = [0]
    monkeypatch.setattr(host_timing, "perf_counter_ns", lambda: now[0])
    return now


def test_a_sample_runs_while_the_inputs_cannot_be_seen_before_and_ends_with_its_bytes(clock: list[int]) -> None:
    case: Any = Case(clock, 2500, p.Sampled(10, 2000, ""))
    results = HostResults({"it": case})
    recorder = HostRecorder({"it": case}, {"it": 700.0}, results)
    recorder.start()
    recorder.sample("it", lambda: case.log.append("prepare"), lambda: None)
    case.result.fill_(9)  # after the sample
    recorder.stop()
    assert case.log == ["stop", "prepare", p.Sample("it"), "stop", "awake"]
    assert recorder.collect() == [Sample("it", 2.0, None)]
    assert recorder.collect() == []
    assert torch.equal(results.latest("it", None), torch.full((3,), 3.0))


def test_a_result_of_another_form_is_refused(clock: list[int]) -> None:
    case: Any = Case(clock, 2500, p.Sampled(10, 2000, "shape: no"))
    results = HostResults({"it": case})
    HostRecorder({"it": case}, {"it": 700.0}, results).sample("it", lambda: None, lambda: None)
    with pytest.raises(RefusedError, match="shape: no"):
        results.latest("it", None)


@pytest.mark.parametrize(("claimed", "span", "found"), [(900, 1000, 900), (100, 1000, 700), (1000, 1000, 1000)])
def test_a_claim_is_bounded_by_what_this_process_saw(claimed: int, span: int, found: int) -> None:
    assert call_ns(claimed, span, 300) == found


def test_a_claim_of_more_than_this_process_saw_is_an_error() -> None:
    with pytest.raises(RaisedError, match="reports 1001 ns for a call that took 1000 ns: a clock was replaced"):
        call_ns(1001, 1000, 300)


def test_the_cost_of_a_sample_is_that_of_one_without_a_call(clock: list[int]) -> None:
    case: Any = Case(clock, 400, p.Sampled(0, 0, ""))
    assert empty_sample_ns(case, "jax", lambda: case.log.append("evict")) == 400
    assert case.log[:4] == ["stop", "evict", p.Sample("", "jax"), "stop"]
    assert case.log[-1] == "awake"
