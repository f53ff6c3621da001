"""Runs of the same code differ, but get no verdict of a change."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from suite.diff.judge import judge
from suite.diff.process_spread import Typical, family_factor, process_arm
from suite.results.noise import mark_noisy
from suite.results.repeats import merged
from suite.results.row import Row
from suite.timing.stats import median, median_interval, paired_ratio
from tests.diff.rows import VENDORS, as_side, judged, ranked, row

ONCE = {"runs": 1, "spread": None, "vs_best_spread": None}


@pytest.mark.parametrize(
    ("recorder", "then", "now"),
    [("cupti", 2.24, 2.368), ("cupti", 2.944, 3.168), ("cupti", 100.0, 103.5), ("wall", 104.7, 201.8)],
    ids=["four ticks at 2 us", "1.076 at 3 us", "3.5% at 100 us", "a busy CPU"],
)
def test_what_was_seen_between_two_runs_of_the_same_code_is_no_verdict(recorder: str, then: float, now: float) -> None:
    base, new = (row("torch", us, 0.001, recorder=recorder, **ONCE) for us in (then, now))
    assert judged([base], [new])["torch"].verdict == judged([new], [base])["torch"].verdict == "AMBIGUOUS"
    (note,) = judged([base], [new])["torch"].notes
    assert note.endswith("with the usual difference between processes, corrected for the number of rows")


def test_a_large_change_is_seen_without_repeats() -> None:
    for recorder, factor in (("cupti", 1.06), ("wall", 2.2)):
        base, new = (row(us=us, recorder=recorder, **ONCE) for us in (100.0, 100.0 * factor))
        assert judged([base], [new])["triton"].verdict == "SLOWER"


def test_repeated_runs_replace_what_is_assumed_by_what_was_measured() -> None:
    base, new = (row(us=us, runs=3, spread=0.01) for us in (100.0, 106.0))
    assert judged([base], [new])["triton"].verdict == "SLOWER"
    assert judged([base], [replace(new, spread=0.05)])["triton"].verdict == "AMBIGUOUS"
    assert judged([replace(base, runs=2)], [new])["triton"].verdict == "AMBIGUOUS", "two runs agree by chance too often"


def test_a_row_that_agreed_by_chance_is_taken_to_spread_as_the_others() -> None:
    others = [row(name, 100.0, spread=0.04) for name in ("a", "b", "c")]
    base, new = ([row(us=us), *others] for us in (100.0, 106.0))
    assert judged(base, new)["triton"].verdict == "AMBIGUOUS"
    assert process_arm(base[0], Typical(), ranked=False) == 0


def test_noise_is_judged_by_its_interval() -> None:
    """A ratio of 7.84, with an interval from 6.0 to 47, was AMBIGUOUS because a row is noisy."""
    base = row(us=784.0, noisy=True, device_us_low=600.0, device_us_high=4700.0)
    change = judged([base], [row(us=100.0)])["triton"]
    assert (change.verdict, change.notes) == ("FASTER", ("at least 6.0x as fast", "noisy in BASE"))
    change = judged([row(us=100.0)], [base])["triton"]
    assert (change.verdict, change.notes) == ("SLOWER", ("takes at least 6.0x as long", "noisy in NEW"))


def test_noise_that_reaches_across_is_no_verdict() -> None:
    """An example is the row `torch * 212.5 us +- 2,195 %`."""
    base = row(us=212.5, noisy=True, device_us_low=100.0, device_us_high=9000.0)
    change = judged([base], [row(us=195.0)])["triton"]
    assert (change.verdict, change.notes) == ("AMBIGUOUS", ("noisy in BASE",))


def test_a_noisy_row_is_no_control() -> None:
    vendors = ranked({"torch": 90.0, "jax": 100.0, "triton": 110.0})
    doubtful = [replace(vendors[0], noisy=True), *vendors[1:]]
    assert judged(doubtful, vendors)["triton"].control == "jax"


def test_a_time_that_contradicts_its_ratio_is_judged_by_both() -> None:
    """The machine changed its speed while the case was timed, which no interval shows."""
    base, new = ranked({"torch": 100.0, "triton": 50.0}), ranked({"torch": 100.0, "triton": 120.0})
    fast = {"noisy": True, "vs_best": 2.0, "vs_best_low": 2.0, "vs_best_high": 2.0}
    change = judged(base, [new[0], replace(new[1], **fast)])["triton"]
    assert (change.verdict, change.evidence) == ("AMBIGUOUS", "both")
    change = judged(base, new)["triton"]
    assert (change.verdict, change.evidence) == ("SLOWER", "vs_best")


def busy(chance: random.Random, rows: int) -> list[Row]:
    """One run on a busy CPU: each process is slower by a factor of its own, and samples have heavy tails.

    Interruptions are shared by the implementations of a case, as they are timed in turns.
    """
    found = []
    for number in range(rows):
        moments = [math.exp(abs(chance.gauss(0, 0.5))) for _ in range(12)]
        samples = {}
        for name in ("torch", "jax", "triton", "numpy"):
            us, wide = 100.0 * math.exp(chance.gauss(0, 0.1)), chance.choice((0.02, 0.2, 0.8))
            samples[name] = [us * moment * math.exp(chance.gauss(0, wide)) for moment in moments]
        times = {name: median(each) for name, each in samples.items()}
        case = ranked(times, case=f"N={number}", recorder="wall", **ONCE)
        reference = next(each for each in case if each.vs_best == 1.0)
        for each in case:
            low, high = median_interval(samples[each.implementation]) or (None, None)
            values: dict[str, Any] = {"device_us_low": low, "device_us_high": high}
            if each is not reference:
                pairs = paired_ratio(samples[reference.implementation], samples[each.implementation])
                values |= dict(zip(("vs_best", "vs_best_low", "vs_best_high"), pairs, strict=True))
            found.append(replace(each, **values))
        mark_noisy(found[-4:], 0.05)
    return found


def test_unchanged_code_on_a_busy_machine_has_no_verdict_of_a_change() -> None:
    chance = random.Random(35)
    base, new = as_side(busy(chance, 220)), as_side(busy(chance, 220))
    changes = judge(base, new).changes
    assert len(changes) == 880
    assert sum(change.base.noisy or change.new.noisy for change in changes) > 600
    assert [each.verdict for each in changes if each.verdict in ("FASTER", "SLOWER")] == []


def test_the_interval_allows_for_the_number_of_rows() -> None:
    assert family_factor(1) == 1
    assert family_factor(286) == pytest.approx(1.91, abs=0.01)
    base, new = row(us=100.0, width=0.005), row(us=104.0, width=0.005)
    assert judged([base], [new])["triton"].verdict == "SLOWER"
    many = [row(f"triton/{i}") for i in range(300)]
    assert judged([base, *many], [new, *many])["triton"].verdict == "AMBIGUOUS"


def test_the_compile_cache_is_noted() -> None:
    base, new = row("jax", 3.3, compile_cache="miss"), row("jax", 2.94, compile_cache="hit")
    assert "compile cache: miss -> hit" in judged([base], [new])["jax"].notes
    assert not [each for each in judged([base], [replace(new, compile_cache="")])["jax"].notes if "cache" in each]


@pytest.mark.parametrize(("then", "now"), [(3.039, 2.752), (2.881, 3.296), (3.28, 3.68)])
def test_a_short_program_of_xla_differs_more_between_processes(then: float, now: float) -> None:
    """Seen with the same kernel on an H200 and an H100. The kernels of torch in the same runs did not change."""
    kernel = {"kernels_run": "loop_or_fusion [1024 x 128]", "kernel_details": "loop_or_fusion (26 registers)"}

    def run(us: float) -> list[Row]:
        return ranked({"torch": 2.88, "jax": us}, 0.01, recorder="cupti", **kernel, **ONCE)

    for base, new in ((run(then), run(now)), (run(now), run(then))):
        assert judged(base, new)["jax"].verdict == "AMBIGUOUS"
    assumed, measured = run(now)[1], replace(run(now)[1], runs=3, spread=0.01, vs_best_spread=0.01)
    assert process_arm(measured, Typical(), ranked=True) < process_arm(assumed, Typical(), ranked=True) / 2
    torch, slower = ([row("torch", us, 0.005, recorder="cupti", **ONCE)] for us in (2.88, 3.29))
    assert judged(torch, slower)["torch"].verdict == "SLOWER"


def test_a_control_that_differs_between_processes_does_not_judge_the_others() -> None:
    """XLA's sigmoid took 3.04 and 2.75 us, and a kernel of ours 2.40 us in both runs."""
    once = {"recorder": "cupti", **ONCE}
    base = ranked({"torch": 3.06, "jax": 3.039, "triton": 2.40}, 0.002, **once)
    new = ranked({"torch": 3.06, "jax": 2.752, "triton": 2.40}, 0.002, **once)
    change = judged(base, new)["triton"]
    assert (change.verdict, change.control) == ("SAME", "torch")


OTHERS = ("gemm_fusion_dot_1 [512 x 256]", "nvjet_sm90_tst_128x128 [132 x 384]")


@pytest.mark.parametrize(("versions", "verdict"), [("jax 0.11.2", "AMBIGUOUS"), ("jax 0.12.0", "SLOWER")])
def test_other_kernels_of_a_vendor_are_no_change_of_the_code(versions: str, verdict: str) -> None:
    """XLA times kernels when it compiles, and may choose others with an empty cache."""
    base = row("jax", 100.0, versions="jax 0.11.2", kernels_run=OTHERS[0], compile_cache="hit")
    new = row("jax", 130.0, versions=versions, kernels_run=OTHERS[1], compile_cache="miss")
    change = judged([base], [new])["jax"]
    assert change.verdict == verdict
    assert f"other kernels ran: {OTHERS[0]} -> {OTHERS[1]}" in change.notes
    assert ("XLA itself chose other kernels" in change.notes) == (verdict == "AMBIGUOUS")
    assert judged([base], [replace(new, kernels_run=OTHERS[0])])["jax"].verdict == "SLOWER"


def test_other_kernels_of_our_code_are_named_and_judged() -> None:
    base, new = row(us=100.0, kernels_run="a [8 x 128]"), row(us=130.0, kernels_run="b [4 x 128]")
    change = judged([base], [new])["triton"]
    assert (change.verdict, change.notes[-1]) == ("SLOWER", "other kernels ran: a [8 x 128] -> b [4 x 128]")
    assert not any("kernels" in each for each in judged([base], [replace(new, kernels_run="")])["triton"].notes)
    alike = [row(us=100.0, kernels_run="a [8 x 128]", kernel_details=f"a ({n} registers)") for n in (40, 64)]
    assert judged(alike[:1], alike[1:])["triton"].notes == (
        "kernels of the same names ran with another grid, block, registers or shared memory",
    )


def simulated(chance: random.Random, rows: int, process: float) -> list[Row]:
    """One run of `rows` cases of two implementations. Each time has the error of its process, and noise."""
    found = []
    for number in range(rows):
        samples = {}
        for name in ("torch", "triton"):
            us = (100.0 + number) * math.exp(chance.gauss(0, process))
            samples[name] = [us * math.exp(chance.gauss(0, 0.01)) for _ in range(20)]
        times = {name: median(each) for name, each in samples.items()}
        for each in ranked(times, 0.005, case=f"N={number}", recorder="cupti", **ONCE):
            low, high = median_interval(samples[each.implementation]) or (None, None)
            found.append(replace(each, device_us_low=low, device_us_high=high))
    return found


@pytest.mark.parametrize(
    ("repeat", "process"), [(1, 0.005), pytest.param(3, 0.01, marks=pytest.mark.thorough), (3, 0.05)]
)
def test_false_verdicts_are_at_most_one_in_a_thousand_rows(repeat: int, process: float) -> None:
    """`process` is the standard deviation between processes. 208 rows on an H200 suggest 0.004."""
    chance, sides = random.Random(repeat), []
    for _ in range(6):
        runs = [simulated(chance, 100, process) for _ in range(repeat)]
        if repeat > 1:
            for first, *others in zip(*runs, strict=True):
                first.fill(merged([replace(first), *others]))
        sides.append(as_side(runs[0]))
    verdicts: list[Any] = [c.verdict for base, new in combinations(sides, 2) for c in judge(base, new).changes]
    assert len(verdicts) == 15 * 200
    assert sum(verdict in ("FASTER", "SLOWER") for verdict in verdicts) <= len(verdicts) / 1000
    assert set(VENDORS) >= {"torch"}
