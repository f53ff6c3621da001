"""The order of timed calls, changes of their inputs and kept results, on a device in simulated time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from fakes.target import FakeTarget

from suite.timing.host_times import LATENCY_CALLS
from suite.timing.recorder_wall import WallRecorder
from suite.timing.sampling import Measurement
from suite.timing.target import CpuTarget


class Noted:
    """Records the calls of the methods of `Inputs`."""

    def __init__(self, events: list[tuple[str, object]]) -> None:
        self.events = events

    def change(self) -> None:
        self.events.append(("change", None))

    def begin_round(self, complete: bool) -> None:
        self.events.append(("round", complete))

    def run_on_other_values(self, run: Callable[[], None]) -> None:
        self.events.append(("other values", None))
        run()
        self.events.append(("put back", None))

    def keep(self, name: str, result: object) -> None:
        self.events.append(("keep", name))
        assert result is not None


def measured(cache: str = "cold", budget_s: float = 0.002) -> list[tuple[str, object]]:
    events: list[tuple[str, object]] = []
    target = FakeTarget()
    evict = target.evict
    target.evict = lambda: (events.append(("evict", None)), evict())[1]  # type: ignore[method-assign]

    def noted(name: str, us: float) -> object:
        call = target.call(name, us)
        return replace(call, issue=lambda: (events.append(("call", name)), call.issue())[1])

    calls = [noted("a", 10.0), noted("b", 20.0)]
    Measurement(calls, target, cache, inputs=Noted(events)).measure(budget_s, 0.005)  # type: ignore[arg-type]
    return events


def rounds(events: list[tuple[str, object]]) -> list[list[tuple[str, object]]]:
    begins = [i for i, (what, _) in enumerate(events) if what == "round"]
    return [events[i:j] for i, j in zip(begins, [*begins[1:], len(events)], strict=True)]


def test_inputs_change_before_the_eviction_of_a_rounds_first_sample_and_every_result_is_kept() -> None:
    found = rounds(measured())
    assert len(found) >= 6
    for each in found:
        first, second = each[3][1], each[6][1]
        assert {first, second} == {"a", "b"}
        sample = lambda name: [("evict", None), ("call", name), ("keep", name)]  # noqa: E731
        assert each == [("round", True), *sample(first), *sample(second)]


def test_a_warm_cache_is_filled_by_a_call_with_other_values() -> None:
    name = rounds(measured("warm"))[0][2][1]
    assert rounds(measured("warm"))[0][1] == ("other values", None)
    expected = [("other values", None), ("call", name), ("put back", None), ("call", name), ("keep", name)]
    assert rounds(measured("warm"))[0][1:6] in (expected, [(w, {"a": "b", "b": "a"}.get(n, n)) for w, n in expected])


def test_inputs_change_before_each_latency_call() -> None:
    events = measured()
    before = events[: events.index(("round", True))]
    assert before.count(("change", None)) >= 2 * LATENCY_CALLS
    cold = [(what, after) for (what, _), (after, _) in pairwise(before) if what == "change"]
    assert set(cold) == {("change", "evict")}


def test_a_round_without_a_call_that_has_its_minimum_is_not_complete() -> None:
    events: list[tuple[str, object]] = []
    target = FakeTarget()
    calls = [target.call("slow", 3e6), target.call("fast", 10.0)]
    Measurement(calls, target, inputs=Noted(events)).measure(0.0, 0.005)
    assert [complete for what, complete in events if what == "round"] == [True] * 3 + [False] * 7


def test_the_garbage_collector_stays_enabled_and_does_not_run() -> None:
    target, seen, before = FakeTarget(), [], gc.get_threshold()
    call = target.call("a", 10.0)

    def issue() -> object:
        seen.append((gc.isenabled(), gc.get_stats()[0]["collections"]))
        _ = [[] for _ in range(2000)]
        return call.issue()

    Measurement([replace(call, issue=issue)], target).measure(0.01, 0.005)
    assert {enabled for enabled, _ in seen} == {True}
    assert len({collections for _, collections in seen}) == 1
    assert gc.get_threshold() == before


def test_a_result_is_released_after_its_sample() -> None:
    """Freeing a large result on a CPU takes as long as a copy, so it must not be part of the sample."""
    held: list[bool] = []

    class Result:
        alive = False

        def __init__(self) -> None:
            Result.alive = True

        def __del__(self) -> None:
            Result.alive = False

    target = FakeTarget()
    call = target.call("a", 10.0)

    def issue() -> Result:
        call.wait(call.issue())
        return Result()

    sample = target.sample

    def sampled(name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        sample(name, lambda: (held.append(Result.alive), prepare())[1], lambda: (run(), held.append(Result.alive))[0])

    target.sample = sampled  # type: ignore[method-assign]
    Measurement([replace(call, issue=issue, wait=lambda result: None)], target).measure(0.001, 0.005)
    assert held == [False, True] * (len(held) // 2)


def test_the_clocks_are_not_those_that_a_file_puts_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    recorder = WallRecorder()
    recorder.sample("a", lambda: None, lambda: torch.ones(1000).sum())
    assert recorder.collect()[0].us > 0
    assert CpuTarget().clock() > 0
