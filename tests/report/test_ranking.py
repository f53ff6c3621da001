"""The winner of a case is decided by intervals. Rows that cannot be trusted are not ranked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report.rows import entries, failed, row, run_of, square

from suite.report.ranking import LEVEL, Outcome, grouped, ranked_cases, tallies
from suite.results.row import Row

WIDE: dict[str, Any] = {"noisy": True, "device_us_low": 1.0, "device_us_high": 9999.0}


def outcome(low: float | None, high: float | None) -> Outcome:
    rows = [row("torch"), row("cuda", 1.0, vs_best_low=low, vs_best_high=high)]
    return ranked_cases(entries(rows))[0].outcome


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1 + 2 * LEVEL, 1.2, Outcome.FASTER),
        (0.8, 1 / (1 + 2 * LEVEL), Outcome.SLOWER),
        (0.995, 1.005, Outcome.LEVEL),
        (1.001, 1.2, Outcome.UNDECIDED),
        (0.7, 1.3, Outcome.UNDECIDED),
        (None, None, Outcome.UNDECIDED),
    ],
    ids=["faster", "slower", "level", "reaches_into_level", "reaches_across", "no_interval"],
)
def test_a_case_is_decided_by_the_whole_interval(low: float | None, high: float | None, expected: Outcome) -> None:
    assert outcome(low, high) is expected


@pytest.mark.parametrize(
    "best",
    [row("cuda", 3.0, **WIDE), row("cuda", 3.0, suspect=True), row("cuda", 3.0, status="wrong"),
     row("cuda", 3.0, execution="interpreted")],
    ids=["noisy", "suspect", "wrong", "interpreted"],
)  # fmt: skip
def test_a_time_that_may_not_be_compared_wins_nothing(best: Row) -> None:
    (case,) = ranked_cases(entries([row("torch"), row("triton", 1.1), best]))
    assert case.fastest is None if best.noisy else case.fastest.row.implementation == "triton"
    assert case.best_of("cuda") is None
    assert case.other.row.implementation == "triton"


def test_nothing_is_held_against_a_noisy_vendor(tmp_path: Path) -> None:
    rows = [row("torch", **{**WIDE, "device_us_low": 70.0}), row("jax", 0.9), row("triton", 1.5)]
    (case,) = ranked_cases(run_of(tmp_path / "run", rows).entries)
    assert case.outcome is Outcome.NONE
    assert case.vendor is None
    assert case.fastest is not None
    assert case.fastest.row.implementation == "triton", "the interval of torch lies above its time"
    assert [entry.ratio for entry in case.entries] == [None] * 3


def test_one_timed_row_has_no_rival() -> None:
    (case,) = ranked_cases(entries([row("torch"), failed("triton", "unsupported")]))
    assert case.fastest is None
    assert case.outcome is Outcome.NONE
    assert case.unranked == "one time"


def test_rows_of_two_recorders_are_not_ranked() -> None:
    (case,) = ranked_cases(entries([row("torch"), row("triton", recorder="wall")]))
    assert case.fastest is None


def test_rows_of_two_devices_are_two_cases() -> None:
    on_cpu = [replace(each, device="cpu") for each in square()]
    assert len(ranked_cases(entries([*square(), *on_cpu]))) == 2


def test_cases_are_counted_by_the_framework_that_wins_them() -> None:
    rows = [*square(512), *square(1024), row("torch", size=2048), row("triton", 1.5, 2048)]
    (tally,) = tallies(ranked_cases(entries(rows)))
    assert tally.faster == {"triton": 1, "cuda": 2}
    assert tally.cases == 3


def test_every_case_of_an_operation_is_counted_and_listed() -> None:
    """Besides one decided case: a noisy one, one with a single time, and one that is unsupported."""
    noisy = [row(name, size=512, noisy=True) for name in ("torch", "triton")]
    rows = [*square(2048), *noisy, row("torch", size=256), failed("triton", "unsupported")]
    results = ranked_cases(entries(rows))
    (tally,) = tallies(results)
    assert (tally.cases, tally.not_compared) == (4, 3)
    (group,) = grouped(results)
    assert [case.unranked for case in group.results] == ["", "all are noisy", "one time", "no time"]


def test_an_operation_is_counted_even_if_all_of_its_times_are_noisy() -> None:
    rows = [row(name, size=size, noisy=True) for size in (512, 1024) for name in ("torch", "triton")]
    (tally,) = tallies(ranked_cases(entries(rows)))
    assert (tally.cases, tally.not_compared) == (2, 2)


def test_an_operation_without_any_time_is_not_in_the_table_of_winners() -> None:
    results = ranked_cases(entries([failed("torch", "wrong"), failed("triton", "unsupported")]))
    assert tallies(results) == grouped(results) == []


def test_a_framework_has_the_ratio_of_its_best_implementation() -> None:
    (case,) = ranked_cases(entries(square()))
    best = case.best_of("cuda")
    assert best is not None
    assert best.row.implementation == "cuda/wgmma"
