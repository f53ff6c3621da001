"""Samples in external processes on a CPU, on a process that answers by a script."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.checking.calls import RefusedError
from suite.external import host_timing
from suite.external import protocol as p
from suite.external.host_timing import EMPTY_PERIOD, EmptySamples, HostRecorder, HostResults, Outputs
from suite.external.process import RaisedError, call_ns
from suite.timing.recorder import Sample


class Case:
    """A case whose process, this one, notes its commands, and writes the number of the command into the result."""

    def __init__(self, clock: list[int], took_ns: int, sampled: p.Sampled) -> None:
        self.result, self.log = torch.zeros(3), []  # type: ignore[var-annotated]
        self.problem = SimpleNamespace(output_shapes=((3,),), output_dtypes=("float32",))
        self._clock, self._took_ns = clock, took_ns
        self._sampled = sampled if sampled.refusal else replace(sampled, places=(place(self.result),))
        self.process = SimpleNamespace(
            pid=os.getpid(),
            stop=lambda: self.log.append("stop"),
            stay_awake=lambda: self.log.append("awake"),
            expect_still=lambda: None,
            sample=self._sample,
        )

    def _sample(self, command: p.Sample) -> p.Sampled:
        self.log.append(command)
        self._clock[0] += self._took_ns
        self.result.fill_(len(self.log))
        return self._sampled


def place(tensor: torch.Tensor) -> p.Place:
    return p.Place(tensor.data_ptr(), tuple(tensor.stride()))


def outputs(*tensors: torch.Tensor) -> Outputs:
    forms = {"output_shapes": [tuple(each.shape) for each in tensors]}
    forms["output_dtypes"] = [str(each.dtype).removeprefix("torch.") for each in tensors]  # type: ignore[misc]
    case: Any = SimpleNamespace(problem=SimpleNamespace(**forms), process=SimpleNamespace(pid=os.getpid()))
    return Outputs(case)


def empty(*spans: float) -> Any:
    """Samples without a call that took `spans`; further ones are counted."""

    class Empty(EmptySamples):
        taken = 0

        def __init__(self) -> None:
            self.spans = list(spans)

        def take(self) -> None:
            self.taken += 1

    return Empty()


@pytest.fixture
def clock(monkeypatch: Any) -> list[int]:
    now = [0]
    monkeypatch.setattr(host_timing, "perf_counter_ns", lambda: now[0])
    return now


def test_a_sample_runs_while_the_inputs_cannot_be_seen_before_and_ends_with_its_bytes(clock: list[int]) -> None:
    case: Any = Case(clock, 2500, p.Sampled(10, 2000, ""))
    results = HostResults({"it": case})
    recorder = HostRecorder({"it": case}, {"it": empty(700.0)}, results)
    recorder.start()
    recorder.sample("it", lambda: case.log.append("prepare"), lambda: None)
    case.result.fill_(9)  # after the sample
    recorder.stop()
    assert case.log == ["stop", "prepare", p.Sample("it"), "stop", "awake"]
    assert recorder.collect() == [Sample("it", 2.0, None)]
    assert recorder.collect() == []
    assert torch.equal(*results.latest("it", None), torch.full((3,), 3.0))


def test_a_result_of_another_form_is_refused(clock: list[int]) -> None:
    case: Any = Case(clock, 2500, p.Sampled(10, 2000, "shape: no"))
    results = HostResults({"it": case})
    HostRecorder({"it": case}, {"it": empty(700.0)}, results).sample("it", lambda: None, lambda: None)
    with pytest.raises(RefusedError, match="shape: no"):
        results.latest("it", None)


@pytest.mark.parametrize(
    "result",
    [
        (torch.randn(5, 7),),
        (torch.randn(7, 5).t(),),
        (torch.randn(2, 3, 4).permute(1, 2, 0),),
        (torch.randn(0, 4),),
        (torch.tensor(2.5),),
        (torch.randn(64), torch.arange(64)),
        (torch.randn(1 << 19), torch.randn(3).to(torch.bfloat16)),
    ],
    ids=lambda result: " ".join(map(str, (tuple(each.shape) for each in result))),
)
def test_outputs_of_any_layout_are_read_in_their_process(result: tuple[torch.Tensor, ...]) -> None:
    found = outputs(*result)
    found.read([place(each) for each in result])
    for read, given in zip(found.tensors(), result, strict=True):
        assert torch.equal(read, given)
        assert read.dtype == given.dtype


@pytest.mark.parametrize("strides", [(5, 1), (0, 1), (1, 1), (3,), (10**30, 1), (-3, 1)])
def test_strides_that_are_not_those_of_an_array_without_gaps_are_refused(strides: tuple[int, ...]) -> None:
    result = torch.zeros(2, 3)
    found = outputs(result)
    found.read([p.Place(result.data_ptr(), strides)])
    with pytest.raises(RefusedError, match="without gaps"):
        found.tensors()


@pytest.mark.parametrize("address", [0, 4096, 2**63, 2**64 - 8, 2**80, -1])
def test_a_place_that_cannot_be_read_is_an_error(address: int) -> None:
    with pytest.raises(RaisedError, match="its result cannot be read in its process"):
        outputs(torch.zeros(3)).read([p.Place(address, (1,))])


def test_another_number_of_outputs_is_an_error() -> None:
    with pytest.raises(RaisedError, match="0 outputs, expected 1"):
        outputs(torch.zeros(3)).read([])


def test_a_system_that_forbids_to_read_is_named() -> None:
    assert "kernel.yama.ptrace_scope" in host_timing.unread(PermissionError(errno.EPERM, "no"))


@pytest.mark.parametrize(("claimed", "span", "found"), [(900, 1000, 900), (100, 1000, 700), (1000, 1000, 1000)])
def test_a_claim_is_bounded_by_what_this_process_saw(claimed: int, span: int, found: int) -> None:
    assert call_ns(claimed, span, 300) == found


def test_a_claim_of_more_than_this_process_saw_is_an_error() -> None:
    with pytest.raises(RaisedError, match="reports 1001 ns for a call that took 1000 ns: a clock was replaced"):
        call_ns(1001, 1000, 300)


def test_samples_without_a_call_run_while_the_process_is_stopped_before_and_after(clock: list[int]) -> None:
    case: Any = Case(clock, 430, p.Sampled(0, 30, ""))
    spans: list[float] = []
    taken = EmptySamples(case, "jax", lambda: case.log.append("evict"), spans)
    taken.begin()
    assert spans == [400] * 9
    assert (taken.middle_ns, taken.largest_ns) == (400, 400)
    assert case.log[:4] == ["stop", "evict", p.Sample("", "jax"), "stop"]
    assert case.log[-1] == "awake"
    before = len(case.log)
    EmptySamples(case, "jax", lambda: None, spans).begin()
    assert len(case.log) == before, "files of one case share them"


@pytest.mark.parametrize(
    ("claimed", "span", "expected"),
    [(2000, 2700, 2000), (2000, 2750, 2050), (2000, 2500, 2000), (100, 2700, 2000)],
    ids=["honest", "50 ns late", "early", "nearly all late"],
)
def test_what_samples_take_longer_than_ones_without_a_call_counts(
    clock: list[int], claimed: int, span: int, expected: int
) -> None:
    """The cost of a sample varies from 600 to 900 ns, 700 in the middle: no single sample shows 50 ns."""
    case: Any = Case(clock, span, p.Sampled(10, claimed, ""))
    without = empty(600.0, 650.0, 700.0, 800.0, 900.0)
    recorder = HostRecorder({"it": case}, {"it": without}, HostResults({"it": case}))
    for _ in range(2 * EMPTY_PERIOD):
        recorder.sample("it", lambda: None, lambda: None)
    assert [each.us for each in recorder.collect()] == [expected / 1000] * 2 * EMPTY_PERIOD
    assert without.taken == 2
