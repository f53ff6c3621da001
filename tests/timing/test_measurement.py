"""Whole measurements of a case, on a device in simulated time."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import asdict, replace

import pytest
import torch
from fakes.target import FakeTarget

from suite import hardware
from suite.core.least import Least
from suite.timing import (
    Call,
    RecorderError,
)
from suite.timing.recorder import Sample
from suite.timing.result import MIN_SAMPLES
from suite.timing.sampling import Measurement
from tests.timing.measured import run


def test_measure_end_to_end() -> None:
    target = FakeTarget()
    jitter = random.Random(3)
    timings = run(
        target,
        target.call("vendor", lambda: 100.0 * jitter.uniform(0.99, 1.01), vendor=True),
        target.call("other vendor", 300.0, vendor=True),
        target.call("ours", lambda: 80.0 * jitter.uniform(0.99, 1.01), kernels=2, issue_us=30.0),
    )
    vendor, other, ours = timings.values()
    assert list(timings) == ["vendor", "other vendor", "ours"]
    assert vendor.device_us == pytest.approx(100, rel=0.005)
    assert ours.device_us == pytest.approx(80, rel=0.005)
    assert ours.device_us_low < ours.device_us < ours.device_us_high
    assert (vendor.vs_best, vendor.vs_best_low, vendor.vs_best_high) == (1.0, 1.0, 1.0)
    assert other.vs_best == pytest.approx(1 / 3, rel=0.01)
    assert ours.vs_best == pytest.approx(1.25, rel=0.01)
    assert ours.vs_best_low < ours.vs_best < ours.vs_best_high
    assert (ours.kernels, vendor.kernels) == (2.0, 1.0)
    assert other.latency_us == pytest.approx(305)
    assert all(each.latency_us > each.device_us for each in timings.values())
    assert ours.dispatch_us == pytest.approx(30)
    assert vendor.stopped_by == "interval"
    assert min(vendor.samples, other.samples, ours.samples) >= MIN_SAMPLES
    assert (vendor.recorder, vendor.recorder_reason, vendor.cache) == ("cupti", "", "cold")
    assert [activity.name for activity in ours.activities] == ["ours", "ours"]
    assert not target.live
    json.dumps(asdict(ours))


@pytest.mark.parametrize("beside", ["another kernel", "a graph"])
def test_kernels_are_traced_serialize_kernels_unless_they_cannot_be(beside: str) -> None:
    target = FakeTarget()
    assert run(target, target.call("a", 10.0, kernels=3))["a"].recorder_reason == ""
    assert target.serial

    target = FakeTarget()
    call = target.call("b", 10.0)

    def issue() -> object:
        result = call.issue()
        if beside == "a graph":
            target.running[-1] = target.running[-1]._replace(in_graph=True)
        else:
            target.running.append(target.running[-1]._replace(name="beside it"))
        return result

    both = run(target, replace(call, issue=issue), target.call("a", 10.0))
    assert both["a"].recorder_reason.startswith("kernels of b overlap, or a graph launches them")
    assert not target.serial


def test_latency_is_measured_before_tracing() -> None:
    target = FakeTarget()
    traced: list[bool] = []
    call = target.call("a", 10.0)

    def issue() -> object:
        traced.append(target.live)
        return call.issue()

    run(target, replace(call, issue=issue))
    assert traced == sorted(traced)
    assert traced.count(False) > 20


def test_cold_evicts_before_every_sample_and_warm_calls_once() -> None:
    cold, warm = FakeTarget(), FakeTarget()
    samples = run(cold, cold.call("a", 10.0))["a"].samples
    assert cold.recorded_evictions == samples + 1  # and before the trial sample
    counts = []
    call = warm.call("a", 10.0)
    counted = replace(call, issue=lambda: (counts.append(warm.live), call.issue())[1])
    samples = run(warm, counted, cache="warm")["a"].samples
    assert warm.evictions == 0
    assert counts.count(True) == 2 * (samples + 1)


def test_noisy_samples_end_by_budget_with_the_minimum() -> None:
    target, jitter = FakeTarget(), random.Random(5)
    noisy = target.call("a", lambda: jitter.uniform(50, 150))
    assert run(target, noisy, budget_s=0.05)["a"].stopped_by == "budget"
    assert run(target, noisy, budget_s=0.0)["a"].samples == MIN_SAMPLES


@pytest.mark.parametrize("jitter", [0.0, 0.9], ids=["narrow", "noisy"])
@pytest.mark.parametrize("least", [Least(samples=300), Least(time_s=0.7), Least(0.7, 300)], ids=str)
def test_the_least_time_and_number_of_samples_are_taken(jitter: float, least: Least) -> None:
    chance = random.Random(3)
    target = FakeTarget()
    calls = [target.call(name, lambda: 100 * chance.uniform(1 - jitter, 1 + jitter)) for name in ("a", "b")]
    begin = target.clock()
    timings = run(target, *calls, budget_s=0.01, least=least)
    spent = target.clock() - begin
    assert min(timing.samples for timing in timings.values()) >= least.samples
    assert spent >= 2 * 1e9 * least.time_s
    assert max(timing.samples for timing in timings.values()) <= 330 or spent <= 2 * 1.2e9 * max(0.7, least.time_s)


@pytest.mark.parametrize("us", [20.0, 130.0, 700.0])
def test_no_sample_is_left_when_the_budget_is_spent(us: float) -> None:
    target = FakeTarget()
    wobble = random.Random(1)
    calls = [target.call(name, lambda: us * wobble.uniform(0.8, 1.2)) for name in ("a", "b", "c")]
    timings = run(target, *calls, budget_s=0.3)
    assert {timing.stopped_by for timing in timings.values()} == {"budget"}
    assert target.samples == []
    assert sum(timing.samples for timing in timings.values()) == target.recorded_evictions - len(calls), (
        "all but the trial samples"
    )


def test_fast_rounds_do_not_stop_at_once() -> None:
    """On a device that heats up, the first samples agree with each other, but not with later ones."""
    target = FakeTarget()
    call = target.call("a", lambda: 100.0 if target.now < 80_000_000 else 120.0)
    assert run(target, call)["a"].device_us == 120.0


def test_rounds_are_shuffled_by_seed() -> None:
    def order(seed: int) -> list[str]:
        target, named = FakeTarget(), []
        run(target, *(target.call(name, 10.0) for name in "abcd"), seed=seed, budget_s=0.01, on_progress=named.append)
        return named[8:40]  # after warm-up and trial samples

    assert order(1) == order(1) != order(2)
    rounds = [order(1)[i : i + 4] for i in range(0, 32, 4)]
    assert all(sorted(r) == list("abcd") for r in rounds)
    assert len(set(map(tuple, rounds))) > 1


def test_pairs_survive_a_drifting_device() -> None:
    target = FakeTarget()
    slower = lambda us: us * (1 + target.now / 2e9)  # noqa: E731
    timings = run(
        target, target.call("vendor", lambda: slower(100.0), vendor=True), target.call("ours", lambda: slower(50.0))
    )
    assert timings["ours"].vs_best == pytest.approx(2.0, rel=1e-3)
    assert timings["ours"].vs_best_high / timings["ours"].vs_best_low < 1.002


def test_the_reference_takes_part_as_long_as_another_call_and_pairs_by_round() -> None:
    """The vendor is certain at once, ours is not; the device slows down meanwhile. The ratio is that of each round."""
    target, jitter = FakeTarget(), random.Random(4)
    drift = lambda us: us * (1 + target.now / 1e8)  # noqa: E731
    timings = run(
        target,
        target.call("vendor", lambda: drift(100.0), vendor=True),
        target.call("other vendor", 900.0, vendor=True),
        target.call("ours", lambda: drift(50.0 * jitter.uniform(0.97, 1.03))),
        budget_s=0.02,
    )
    assert timings["vendor"].samples == timings["ours"].samples > timings["other vendor"].samples >= MIN_SAMPLES
    assert timings["ours"].vs_best == pytest.approx(2.0, rel=0.01)


def test_a_noisy_call_gets_more_than_its_budget() -> None:
    def samples(noise: float, width: float) -> int:
        target, jitter = FakeTarget(), random.Random(7)
        call = target.call("a", lambda: 100.0 * math.exp(jitter.gauss(0, width)))
        timing = run(target, call, budget_s=0.1, noise=noise, interval=1e-6)["a"]
        assert timing.stopped_by == "budget"
        return timing.samples

    within = samples(0.05, 0.1)
    assert 5 * within > samples(0.0001, 0.1) > 2 * within, "up to four times the budget"


def test_a_vendor_call_whose_median_is_noise_is_no_reference() -> None:
    target, turn = FakeTarget(), itertools.count()
    timings = run(
        target,
        target.call("noise", lambda: (5.0, 6000.0)[next(turn) % 2], vendor=True),
        target.call("vendor", 5000.0, vendor=True),
        target.call("ours", 2500.0),
    )
    assert timings["vendor"].vs_best == 1.0
    assert timings["ours"].vs_best == pytest.approx(2.0)


def test_a_noisy_vendor_call_is_the_reference_if_its_interval_decides() -> None:
    target, turn = FakeTarget(), itertools.count()
    timings = run(
        target,
        target.call("noisy", lambda: (900.0, 1200.0)[next(turn) % 2], vendor=True),
        target.call("quiet", 5000.0, vendor=True),
    )
    assert timings["noisy"].vs_best == 1.0
    assert timings["quiet"].vs_best < 0.25


def test_dispatch_is_that_of_calls_in_a_loop_and_a_graph_that_of_its_replay() -> None:
    target = FakeTarget()
    short, long = target.call("short", 10.0, issue_us=7.0), target.call("long", 900.0, issue_us=7.0)
    first = itertools.cycle([40.0] + 29 * [0.0])  # what a call to an idle device costs more
    captured: list[int] = []

    def issue() -> object:
        target.now += int(1000 * next(first))
        return short.issue()

    def capture(issue: object, count: int) -> object:
        captured.append(count)
        return lambda: setattr(target, "now", target.now + count * 11_000)

    calls = replace(short, issue=issue, capture=capture), replace(long, capture=capture)
    found = run(target, *calls, cache="warm")
    assert found["short"].dispatch_us == pytest.approx(7 + 40 / 30, rel=0.1)
    assert found["short"].graph_us == pytest.approx(11)
    assert captured == [50]
    assert (found["long"].dispatch_us, found["long"].graph_us) == (7.0, None)


@pytest.mark.parametrize(
    ("cache", "rotates", "sets", "evicted"),
    [("cold", True, [50], 1), ("cold", False, [], None), ("warm", True, [], 0)],
    ids=["cold: others for each call", "cold, on the same inputs: none", "warm: the same inputs"],
)
def test_a_replay_of_a_graph_has_the_cache_state_that_was_asked(
    cache: str, rotates: bool, sets: list[int], evicted: int | None
) -> None:
    target = FakeTarget()
    call, asked, before = target.call("a", 10.0), list[int](), list[int]()

    def in_turn(count: int) -> object:
        asked.append(count)
        return call.issue

    def capture(issue: object, count: int) -> object:
        def replay() -> None:
            before.append(target.evictions)
            target.now += count * 11_000

        return replay

    found = run(target, replace(call, capture=capture, in_turn=in_turn if rotates else None), cache=cache)
    assert asked == sets
    assert found["a"].graph_us == (None if evicted is None else pytest.approx(11))
    assert {later - earlier for earlier, later in itertools.pairwise(before)} == (
        set() if evicted is None else {evicted}
    )


def test_a_call_that_cannot_be_captured_has_no_graph_time() -> None:
    target = FakeTarget()
    found = run(target, replace(target.call("a", 10.0), capture=lambda issue, count: None))
    assert found["a"].graph_us is None


def test_latency_on_the_host_is_that_of_the_samples() -> None:
    """A call with its inputs in the cache would be 100 times as fast. No sample and no number is of such a call."""
    target = FakeTarget()
    target.on_host = True
    calls = itertools.count()
    call = target.call("a", lambda: (10.0, 1000.0)[target.live and next(calls) >= 0])
    timing = run(target, call)["a"]
    assert timing.latency_us == timing.device_us == 1000.0
    assert timing.dispatch_us == 5.0


def test_calls_on_the_host_have_the_threads_of_a_native_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    seen = set[int]()
    before = torch.get_num_threads()
    for on_host, threads in ((True, 3), (False, None)):
        target = FakeTarget()
        target.on_host = on_host
        call = target.call("torch", 10.0)

        def issue(call: Call = call) -> object:
            seen.add(torch.get_num_threads())
            return call.issue()

        seen.clear()
        found = run(target, replace(call, issue=issue))
        assert found["torch"].threads == threads
        assert seen == {threads or before}
    assert torch.get_num_threads() == before


def test_a_call_without_activities_gets_an_error_and_no_time() -> None:
    target = FakeTarget()
    timings = run(target, target.call("ghost", 10.0, kernels=0, vendor=True), target.call("a", 20.0))
    ghost = timings["ghost"]
    assert ghost.error == "cupti saw no kernel, copy or fill of this call"
    assert (ghost.device_us, ghost.vs_best, ghost.samples, ghost.stopped_by) == (None, None, 0, "")
    assert ghost.latency_us is not None
    assert timings["a"].device_us == 20.0
    assert timings["a"].vs_best is None  # the vendor's call was not recorded


def test_an_inconsistent_record_ends_the_case_and_the_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget()

    def broken() -> list[Sample]:
        raise RecorderError("dropped")

    monkeypatch.setattr(target, "collect", broken)
    with pytest.raises(RecorderError, match="dropped"):
        run(target, target.call("a", 10.0))
    assert not target.live


def test_without_cupti_there_are_latency_and_a_reason_but_no_device_time() -> None:
    target = FakeTarget(unavailable="cupti-python is not installed")
    timing = run(target, target.call("a", 10.0, vendor=True))["a"]
    assert (timing.recorder, timing.recorder_reason) == ("wall", "cupti-python is not installed")
    assert (timing.device_us, timing.vs_best, timing.kernels, timing.samples) == (None, None, None, 0)
    assert timing.latency_us == pytest.approx(15)
    assert target.recorded_evictions == 0


def test_a_changing_number_of_kernels_is_flagged() -> None:
    target, turn = FakeTarget(), itertools.count()
    timing = run(target, target.call("a", 10.0, kernels=lambda: 1 + next(turn) % 2))["a"]
    assert "activities of one call vary from 1 to 2" in timing.flags
    assert timing.kernels == pytest.approx(1.5, abs=0.01)


def test_states_are_summarized_and_slowdowns_flagged() -> None:
    calm = hardware.State(1980, 3201, 40, 300.0, 0x1 | 0x4, 0, clock_sm_max_mhz=2200)
    hot = hardware.State(1200, 3201, 88, 690.0, 0x20, 2)
    target = FakeTarget(states=[calm, calm, hot])
    timing = run(target, target.call("a", lambda: random.uniform(50, 150)))["a"]
    assert (timing.temperature_c, timing.power_w) == (88, 690.0)
    assert (timing.clock_sm_mhz, timing.clock_of_max) == (1980, 0.9)
    assert timing.clock_reasons == "power cap, thermal slowdown by software"
    assert timing.flags == ("clocks were lowered: thermal slowdown by software", "2 other processes on the device")
    quiet = FakeTarget(states=[calm])
    assert run(quiet, quiet.call("a", 10.0))["a"].flags == ()


@pytest.mark.parametrize(
    ("names", "cache", "message"), [(["a", "a"], "cold", "names of calls must differ"), (["a"], "hot", "cold.*'hot'")]
)
def test_measure_refuses(names: list[str], cache: str, message: str) -> None:
    target = FakeTarget()
    with pytest.raises(ValueError, match=message):
        Measurement([target.call(name, 1.0) for name in names], target, cache)
