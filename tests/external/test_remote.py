"""The stand-ins for calls in an external process, on a process that answers by a script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.checking.memory import copies_with_layout
from suite.external import protocol as p
from suite.external.process import RaisedError
from suite.external.remote import RemoteRecorder, RemoteResults, remote_call
from suite.external.shared_memory import allocate, attach, describe, tensor_of
from suite.timing.intervals import Activity, Launch, NoRecorderError, RecorderError

CPU = torch.device("cpu")
ACTIVITY = Activity("add_kernel", 5, 9, "kernel", False, Launch((1, 2, 3), (32, 1, 1), 16, 64))


class ScriptedProcess:
    """Notes the commands; answers `answers` by the command's class, or `Finished`."""

    handoff_ns = 1_000_000_000

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.commands: list[object] = []

    def ask(self, command: object, expected: type, descriptors: Sequence[int] = ()) -> Any:
        self.commands.append(command)
        return self._next(expected)

    def answer(self, expected: type) -> Any:
        return self._next(expected)

    def _next(self, expected: type) -> Any:
        if expected is p.Finished and not (self.answers and isinstance(self.answers[0], p.Raised)):
            return p.Finished()
        found = self.answers.pop(0)
        if isinstance(found, p.Raised):
            raise RaisedError(found)
        assert isinstance(found, expected)
        return found


def recorder(process: ScriptedProcess) -> tuple[RemoteRecorder, RemoteResults]:
    case = SimpleNamespace(result=torch.zeros(1))
    results = RemoteResults(case, ["it"])  # type: ignore[arg-type]
    return RemoteRecorder(process, results, "it", idle_before=True, idle_after=True), results  # type: ignore[arg-type]


def test_the_samples_of_a_gpu_are_those_of_the_external_recorder() -> None:
    observed = p.Observed("add_kernel", 5, 9, "kernel", False, p.ObservedLaunch((1, 2, 3), (32, 1, 1), 16, 64))
    collected = p.Collected((p.Recorded("it", 1.5, 2), p.Recorded("it", 1.6, 1)), (p.Latest("it", (observed,)),))
    taken, _ = recorder(ScriptedProcess(p.Ran(1, 2), p.Delivered(), collected))
    taken.sample("it", lambda: taken._process.commands.append("prepare"), lambda: None)  # type: ignore[attr-defined]
    assert taken._process.commands == [p.Record("it"), "prepare", p.Go()]  # type: ignore[attr-defined]
    first, last = taken.collect()
    assert [(first.us, len(first.activities or ())), (last.us, len(last.activities or ()))] == [(1.5, 2), (1.6, 1)]
    assert list(last.activities or ()) == [ACTIVITY]
    assert (last.activities or ())[:1] == [ACTIVITY]


def test_a_process_learns_only_after_a_sample_that_its_result_is_held() -> None:
    taken, results = recorder(ScriptedProcess(p.Ran(1, 2), p.Delivered(), p.Finished()))
    taken.sample("it", lambda: None, lambda: None)
    results._case = SimpleNamespace(process=taken._process)  # type: ignore[assignment]
    results.held("it", (torch.zeros(1),))
    assert taken._process.commands == [p.Record("it"), p.Go(), p.Keep("it")]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (True, True, [2.0, 100.0, 1.0 + 10 + 30 + 0.5, 5.0 + 0.25]),
        (False, True, [2.0, 100.0, 1.5, 5.25]),
        (True, False, [2.0, 100.0, 41.0, 5.0]),
    ],
    ids=["idle", "renews its inputs", "converts its results"],
)
def test_a_file_is_charged_with_its_work_before_and_after_calls(
    before: bool, after: bool, expected: list[float]
) -> None:
    """Also with work beside another call of the round, in which the inputs were there already."""
    taken = (
        p.Recorded("it", 2.0, 1),
        p.Recorded("torch", 100.0, 1, before_us=10.0, after_us=7.0),
        p.Recorded("it", 1.0, 1, before_us=30.0, after_us=0.5),
        p.Recorded("it", 5.0, 1, after_us=0.25),
    )
    latest = (p.Latest("it", ()), p.Latest("torch", ()))
    process = ScriptedProcess(p.Collected(taken, latest))
    recorder = RemoteRecorder(process, None, "it", idle_before=before, idle_after=after)  # type: ignore[arg-type]
    assert [each.us for each in recorder.collect()] == expected


@pytest.mark.parametrize(
    ("kind", "do", "error"),
    [
        ("no recorder", "start", NoRecorderError),
        ("recorder", "collect", RecorderError),
        ("error", "start", RaisedError),
        ("error", "collect", RaisedError),
    ],
)
def test_what_the_external_recorder_raises_is_raised_here(kind: Any, do: str, error: type[Exception]) -> None:
    taken, _ = recorder(ScriptedProcess(p.Raised(kind, "why")))
    with pytest.raises(error, match="why"):
        getattr(taken, do)()


def test_a_call_is_timed_by_the_process_and_repeated_by_one_command() -> None:
    process = ScriptedProcess(p.Ran(5, 20), p.Ran(50, 60), p.Ran(5, 20), p.Ran(0, 0))
    call = remote_call(process, "it", vendor=True)  # type: ignore[arg-type]
    now = iter([0, 1000, 2000, 3000])
    assert call.spans(lambda: next(now)) == (5, 20)
    assert call.loop(10, lambda: next(now)) == 5
    call.run()
    call.repeat(7)
    assert process.commands == [p.Run("it", each) for each in (1, 10, 1, 7)]
    assert call.vendor


def test_operands_have_the_same_layout_on_both_sides() -> None:
    base = torch.arange(24.0).view(4, 6)
    given = (base.t()[1:], base, torch.empty(0), torch.tensor(2.5, dtype=torch.bfloat16))
    shared, places = [], {}

    def allocated(nbytes: int, block: int) -> torch.Tensor:
        shared.append(allocate(nbytes, CPU, block))
        places.setdefault(shared[-1].bytes.untyped_storage().data_ptr(), len(shared) - 1)
        return shared[-1].bytes

    buffers = copies_with_layout(given, allocated)
    assert len(shared) == 3, "what shares memory does so there too"
    operands = [describe(each, places[each.untyped_storage().data_ptr()]) for each in buffers]
    descriptors = [os.dup(each.descriptor) for each in shared if each.descriptor is not None]
    blocks = attach([each.block for each in shared], descriptors, CPU)
    there = [tensor_of(operand, blocks) for operand in operands]
    for here, other, original in zip(buffers, there, given, strict=True):
        assert torch.equal(other, original)
        assert (other.stride(), other.storage_offset()) == (original.stride(), original.storage_offset())
        assert other.numel() == 0 or other.data_ptr() != here.data_ptr()
    buffers[1].zero_()
    assert not there[0].any()
