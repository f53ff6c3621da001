"""The verdicts that follow from times, intervals and statuses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from suite.diff import render
from suite.diff.judge import judge
from tests.diff.rows import as_side, judged, printed, ranked, row


@pytest.mark.parametrize(
    ("us", "width", "verdict"),
    [
        (100.0, 0.0, "SAME"),
        (103.0, 0.0, "SAME"),  # at the edge
        (103.001, 0.0, "SLOWER"),
        (100 / 1.03, 0.0, "SAME"),
        (100 / 1.03001, 0.0, "FASTER"),
        (101.0, 0.001, "SAME"),  # certain, but smaller than the threshold
        (103.0, 0.001, "AMBIGUOUS"),
        (102.5, 0.01, "AMBIGUOUS"),
        (97.5, 0.01, "AMBIGUOUS"),
        (104.0, 0.005, "SLOWER"),
        (96.0, 0.005, "FASTER"),
        (100.0, 0.05, "AMBIGUOUS"),  # no sign of a change, but not known to the threshold
        (130.0, 0.5, "AMBIGUOUS"),
        (200.0, 0.2, "SLOWER"),
        (200.0, 1.0, "AMBIGUOUS"),  # from nothing to twice the time
    ],
)
def test_the_whole_interval_decides(us: float, width: float, verdict: str) -> None:
    change = judged([row(us=100.0, width=width)], [row(us=us, width=width)])["triton"]
    assert change.verdict == verdict
    assert change.ratio is not None
    assert math.exp(change.ratio.value) == pytest.approx(100 / us)
    assert change.evidence == "device_us"


def test_a_wider_threshold_decides_what_a_narrow_one_cannot() -> None:
    base, new = [row(us=100.0, width=0.01)], [row(us=102.5, width=0.01)]
    assert judged(base, new, 0.03)["triton"].verdict == "AMBIGUOUS"
    assert judged(base, new, 0.1)["triton"].verdict == "SAME"
    assert judged(base, new, 0.005)["triton"].verdict == "SLOWER"


@pytest.mark.parametrize("side", ["base", "new"])
@pytest.mark.parametrize("missing", ["device_us_low", "device_us_high"])
def test_without_an_interval_nothing_is_decided(side: str, missing: str) -> None:
    rows = {"base": row(us=100.0), "new": row(us=300.0)}
    rows[side] = replace(rows[side], **{missing: None})
    found = judge(as_side([rows["base"]]), as_side([rows["new"]]), 0.03)
    assert found.changes[0].verdict == "AMBIGUOUS"
    assert found.changes[0].notes == (f"{side.upper()}: no 95% interval",)
    assert printed(found)[2].split() == ["triton", "AMBIGUOUS", "0.333", "100.0", "300.0", "time", "1"]


@pytest.mark.parametrize(
    ("us", "by_time", "by_vendor"),
    [
        (1.088, "SAME", "AMBIGUOUS"),
        (1.12, "AMBIGUOUS", "AMBIGUOUS"),
        (1.216, "AMBIGUOUS", "AMBIGUOUS"),
        (1.312, "SLOWER", "AMBIGUOUS"),
        (1.44, "SLOWER", "SLOWER"),
    ],
)
def test_a_few_ticks_of_the_clock_are_not_a_change(us: float, by_time: str, by_vendor: str) -> None:
    """1.088 us are 34 ticks of 32 ns, and all samples may be equal. The ratio to another row is no more exact."""
    base, new = row(us=1.088, recorder="cupti"), row(us=us, recorder="cupti")
    assert judged([base], [new], 0.025)["triton"].verdict == by_time
    pair = [ranked({"torch": 1.088, "triton": time}, recorder="cupti") for time in (1.088, us)]
    change = judged(*pair, 0.025)["triton"]
    assert (change.verdict, change.evidence) == (by_vendor, "vs_best")


@pytest.mark.parametrize(
    ("then", "now", "verdict", "note"),
    [
        ("ok", "wrong", "BROKEN", "ok -> wrong: because"),
        ("ok", "error", "BROKEN", "ok -> error: because"),
        ("ok", "timeout", "BROKEN", "ok -> timeout: because"),
        ("wrong", "ok", "FIXED", "wrong -> ok"),
        ("error", "ok", "FIXED", "error -> ok"),
        ("timeout", "ok", "FIXED", "timeout -> ok"),
        ("ok", "unsupported", "UNTIMED", "ok -> unsupported: because"),
        ("unavailable", "ok", "UNTIMED", "unavailable -> ok"),
        ("unavailable", "wrong", "UNTIMED", "unavailable -> wrong: because"),
        ("wrong", "wrong", "UNTIMED", None),
        ("unsupported", "unsupported", "UNTIMED", None),
    ],
)
def test_a_status_that_changed(then: str, now: str, verdict: str, note: str | None) -> None:
    base, new = (
        row(us=100.0 if status == "ok" else None, status=status, reason="" if status == "ok" else "because")
        for status in (then, now)
    )
    found = judge(as_side([base]), as_side([new]), 0.03)
    assert found.changes[0].verdict == verdict
    assert found.changes[0].notes == (() if note is None else (note,))
    assert found.changes[0].ratio is None
    assert found.exit_status == (3 if verdict == "BROKEN" else 0)
    assert bool(printed(found)) is (note is not None)


def test_a_row_that_broke_before_it_was_timed_is_broken() -> None:
    """With --no-time in BASE, the row was known to agree, and it no longer does."""
    assert judged([row(us=None)], [row(us=None, status="wrong", reason="off")])["triton"].verdict == "BROKEN"


def test_a_missing_time_is_untimed() -> None:
    change = judged([row(us=100.0)], [row(us=None, reason="not timed: no CUPTI")])["triton"]
    assert (change.verdict, change.notes) == ("UNTIMED", ("no time in NEW: not timed: no CUPTI",))
    change = judged([row(us=None)], [row(us=None)])["triton"]
    assert (change.verdict, change.notes) == ("UNTIMED", ())
    assert judged([row(us=0.0)], [row(us=100.0)])["triton"].verdict == "UNTIMED"


def test_a_suspect_time_counts_as_none() -> None:
    change = judged([row(us=100.0)], [row(us=1.0, suspect=True, remarks="suspect: 20 times the peak")])["triton"]
    assert (change.verdict, change.notes) == ("UNTIMED", ("no time in NEW: suspect: 20 times the peak",))


def test_what_puts_a_number_in_doubt_is_noted() -> None:
    base = row(us=100.0, config="BLOCK_M=64", clock_sm_mhz=1980.0, remarks="clocks were lowered: power cap")
    new = row(us=100.0, config="BLOCK_M=128", clock_sm_mhz=1970.0, reason="no CUPTI")
    assert judged([base], [new])["triton"].notes == (
        "BASE: clocks were lowered: power cap",
        "NEW: no CUPTI",
        "config: BLOCK_M=64 -> BLOCK_M=128",
    )


def test_rows_in_only_one_of_the_two_are_listed() -> None:
    base, new = [row("cuda"), row("cuda/tiled"), row()], [row(), row("jax")]
    found = judge(as_side(base), as_side(new), 0.03)
    assert found.exit_status == 0
    assert [r.implementation for r in found.only_in_base] == ["cuda", "cuda/tiled"]
    assert [r.implementation for r in found.only_in_new] == ["jax"]
    assert printed(found)[:2] == [
        "only in BASE: matmul M=64,N=64,K=64 float32 ieee: cuda, cuda/tiled",
        "only in NEW: matmul M=64,N=64,K=64 float32 ieee: jax",
    ]
    assert render.summary(found) == "1 rows in both: 1 SAME; 2 only in BASE; 1 only in NEW; threshold 3%"


@pytest.mark.parametrize("what", ["operation", "case", "dtype", "precision", "implementation", "device"])
def test_rows_that_differ_in_an_identifying_column_are_not_paired(what: str) -> None:
    found = judge(as_side([row(), row("cuda")]), as_side([row(), replace(row("cuda"), **{what: "other"})]), 0.03)
    assert len(found.changes) == len(found.only_in_base) == len(found.only_in_new) == 1
