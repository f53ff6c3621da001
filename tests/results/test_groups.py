"""The one ranking of a case: noisy rows are ranked only if their intervals decide."""

from __future__ import annotations

from typing import Any

import pytest

from suite.results.groups import standing, standings
from suite.results.row import Row
from tests.results.rows import row


def timed(name: str, us: float, width: float = 0.01, **values: Any) -> Row:
    ends = {"device_us_low": us * (1 - width), "device_us_high": us * (1 + width)}
    return row(name, **{"device_us": us, "recorder": "wall", "noisy": width > 0.05, **ends, **values})


def reference(name: str, us: float, width: float = 0.01) -> Row:
    return timed(name, us, width, vendor="a library", vs_best=1.0, vs_best_low=1.0, vs_best_high=1.0)


def names(rows: Any) -> list[str]:
    return [each.implementation for each in rows]


def test_a_noisy_row_is_ranked_if_its_interval_decides() -> None:
    """`numpy` once had the star at 477.6 us, beside `torch` at 103.7 +- 12.2%."""
    rows = [
        timed("numpy", 477.6, vendor="NumPy", vs_best=0.217, vs_best_low=0.2, vs_best_high=0.25),
        reference("torch", 103.7, 0.122),
    ]
    found = standing(rows)
    assert names(found.ranked) == ["torch", "numpy"]
    assert found.winner is rows[1]
    assert found.vendor is rows[1]
    assert found.ratio(rows[0]) == rows[0].vs_best


@pytest.mark.parametrize(
    ("us", "width", "winner", "ranked", "rivals"),
    [
        (110.0, 0.2, None, ["quiet"], ["noisy"]),
        (90.0, 0.2, None, ["quiet"], ["noisy"]),
        (300.0, 0.2, "quiet", ["quiet", "noisy"], []),
        (50.0, 0.2, "noisy", ["noisy", "quiet"], []),
    ],
)
def test_a_noisy_row_that_may_be_faster_leaves_no_winner(
    us: float, width: float, winner: str | None, ranked: list[str], rivals: list[str]
) -> None:
    found = standing([timed("quiet", 100.0), timed("noisy", us, width)])
    assert (found.winner.implementation if found.winner else None) == winner
    assert (names(found.ranked), names(found.rivals)) == (ranked, rivals)


def test_noisy_rows_far_behind_decide_nothing() -> None:
    found = standing([timed("quiet", 100.0), timed("one", 500.0, 0.3), timed("other", 550.0, 0.3)])
    assert found.winner is found.timed[0]
    assert names(found.ranked) == ["quiet"]
    assert not found.rivals


def test_ratios_to_a_vendor_mean_nothing_if_a_noisy_vendor_may_be_faster() -> None:
    ours = timed("triton", 80.0, vs_best=1.25, vs_best_low=1.24, vs_best_high=1.26)
    found = standing([reference("numpy", 100.0), timed("torch", 105.0, 0.5, vendor="PyTorch"), ours])
    assert (found.vendor, found.ratio(ours)) == (None, None)
    assert standing([reference("numpy", 100.0), ours]).ratio(ours) == 1.25


def test_a_time_whose_ratio_says_otherwise_is_not_ranked() -> None:
    """The machine changed its speed meanwhile: the interval of the time is narrow, and that of the ratio is another."""
    ours = timed("triton", 120.0, noisy=True, vs_best=1.32, vs_best_low=1.3, vs_best_high=1.34)
    found = standing([reference("torch", 100.0), ours])
    assert (found.winner, names(found.rivals)) == (None, ["triton"])


def test_times_without_an_interval_are_ranked_if_they_lie_far_apart() -> None:
    none = {"device_us_low": None, "device_us_high": None, "noisy": True}
    slow, fast, near = timed("slow", 1000.0, **none), timed("fast", 100.0), timed("near", 150.0, **none)
    assert standing([slow, fast]).winner is fast
    assert standing([slow, fast, near]).winner is None


def test_rows_timed_in_turns_are_ranked_by_their_ratios() -> None:
    rows = [reference("torch", 100.0), timed("triton", 100.2, vs_best=1.01, vs_best_low=1.005, vs_best_high=1.015)]
    assert standing(rows).winner is rows[1]


def test_each_device_has_its_own_ranking() -> None:
    rows = [timed("torch", 10.0, device="cuda:0"), timed("torch", 1.0, device="cpu"), timed("jax", 2.0, device="cpu")]
    assert standing(rows).winner is None, "alone on the device of the first row"
    assert standings(rows)["cpu"].winner is rows[1]


@pytest.mark.parametrize("values", [{"status": "wrong"}, {"suspect": True}, {"execution": "interpreted"}])
def test_what_cannot_be_compared_is_not_ranked(values: dict[str, Any]) -> None:
    assert names(standing([timed("a", 1.0, **values), timed("b", 2.0), timed("c", 3.0)]).ranked) == ["b", "c"]
