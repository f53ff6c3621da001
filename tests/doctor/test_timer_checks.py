"""The verdicts of the timer's proof, and its table."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from rich.console import Console

from suite.doctor.timer_proof import checks, expectations, render
from suite.doctor.timer_proof.checks import Check, ProofRow
from suite.timing import Activity, Timing


def timing(us: float | None, *kinds: str, clock: float | None = 1980.0, gap_us: float = 0.0, **more: Any) -> Timing:
    """A record of equal activities, one after the other, `gap_us` between them."""
    kinds = kinds or ("kernel",)
    starts = [int(1000 * i * ((us or 0) / len(kinds) + gap_us)) for i in range(len(kinds))]
    length = int(1000 * (us or 0) / len(kinds))
    found = tuple(Activity(k, at, at + length, k) for k, at in zip(kinds, starts, strict=True))
    known: dict[str, Any] = {"samples": 9, "device_us": us, "clock_sm_mhz": clock, "activities": found, **more}
    return Timing("cupti", "", "warm", **known)


def check(expect: Any, **more: Any) -> Check:
    return Check("cuda", "work", "call", expect, "because", **more)


@pytest.mark.parametrize(
    ("us", "expected", "verdict"),
    [
        (1009.0, 1000.0, "ok"),
        (1011.0, 1000.0, "off"),
        (989.0, 1000.0, "off"),
        (10.29, 10.0, "ok"),
        (10.31, 10.0, "off"),
        (19.69, 20.0, "off"),
        (20.2, 20.1, "ok"),
        (20.31, 20.1, "off"),  # 1% from here on
    ],
)
def test_the_tolerance(us: float, expected: float, verdict: str) -> None:
    row = checks.judge(check(lambda timings: expected), {"call": timing(us)})
    assert row.verdict == verdict
    assert row.ratio == pytest.approx(us / expected)
    assert row.low_us is not None
    assert row.high_us is not None
    assert row.low_us < expected < row.high_us


def test_expectations() -> None:
    timings = {"a": timing(10.0), "b": timing(5.0, clock=None), "c": timing(None), "d": timing(7.0, latency_us=9.0)}
    assert expectations.times(3, "a")(timings) == 30
    assert expectations.total("a", "b")(timings) == 15
    assert expectations.cycles(1980, "a")(timings) == 1.0
    assert expectations.cycles(1980, "a", after="b")(timings) == 6.0
    assert expectations.cycles(1980, "b")(timings) is None
    assert expectations.host_clock("d")(timings) == 9.0
    for missing in ("c", "e"):
        with pytest.raises(checks.UnknownError, match=f"{missing} was not recorded"):
            expectations.times(1, missing)(timings)


def test_a_row_without_times_says_why() -> None:
    ours = {"call": timing(10.0)}
    assert checks.judge(check(expectations.times(2, "lost")), ours).verdict == "off"
    assert checks.judge(check(lambda timings: None), ours).verdict == "not run"
    assert checks.judge(check(expectations.times(1, "call")), {}).note == "not recorded"
    silent = {"call": timing(None, error="cupti saw no kernel, copy or fill of this call")}
    row = checks.judge(check(expectations.times(1, "call")), silent)
    assert (row.verdict, row.note) == ("off", "cupti saw no kernel, copy or fill of this call")


def test_the_activities_must_be_those_launched() -> None:
    pair = {"call": timing(100.0, "kernel", "memset")}
    same = expectations.times(1, "call")
    row = checks.judge(check(same), pair)
    assert (row.verdict, row.activities) == ("off", "1 kernel, 1 memset")
    assert "should hold 1 kernel" in row.note
    assert checks.judge(check(same, activities={"kernel": 1, "memset": 1}), pair).verdict == "ok"
    assert checks.judge(check(same, activities=None), pair).verdict == "ok"
    assert (
        checks.judge(check(same, activities={"kernel": 2}), {"call": timing(9.0, "kernel", "kernel")}).verdict == "ok"
    )


def test_a_gap_or_overlap_is_required_where_it_is_tested() -> None:
    apart, close = timing(100.0, "kernel", "kernel", gap_us=2000), timing(100.0, "kernel", "kernel")
    assert expectations.requires_idle(1000)(apart) == ""
    assert expectations.requires_idle(1000)(close) == "the device was idle for 0 us only"
    assert expectations.requires_overlap(20)(close) == "the kernels overlapped for 0 us only"
    assert expectations.requires_overlap(20)(timing(100.0, "kernel", "kernel", gap_us=-25)) == ""
    assert expectations.requires_idle(1)(timing(5.0, activities=())) != ""
    row = checks.judge(
        check(expectations.times(1, "call"), activities={"kernel": 2}, requirement=expectations.requires_idle(1000)),
        {"call": close},
    )
    assert row.verdict == "off"


def test_flags_become_notes_and_do_not_decide() -> None:
    row = checks.judge(
        check(expectations.times(1, "call")), {"call": timing(9.0, flags=("1 other process on the device",))}
    )
    assert (row.verdict, row.note) == ("ok", "1 other process on the device")


OK = ProofRow("cuda", "spin", 10.0, 10.0, 1.0, 9.7, 10.3, "ok", "by definition", "1 kernel", 9)
OFF = ProofRow(
    "torch", "a|b", 12.0, 10.0, 1.2, 9.7, 10.3, "off", "by definition", "2 kernels", 9, "the record should hold"
)
ABSENT = checks.without_times("jax", "everything", "not run", "jax not installed")


def test_the_proof_passes_if_no_row_is_off_and_one_is_ok() -> None:
    assert checks.passed([OK, ABSENT])
    assert not checks.passed([OK, OFF])
    assert not checks.passed([ABSENT])
    assert not checks.passed([])
    assert render.summary([OK, OFF, ABSENT]) == "3 rows: 1 off, 1 not run, 1 ok"


def test_the_table_in_every_form() -> None:
    rows = [OK, OFF, ABSENT]
    table = list(csv.DictReader(render.to_csv(rows).splitlines()))
    assert [each["verdict"] for each in table] == ["ok", "off", "not run"]
    assert (float(table[1]["ratio"]), table[2]["recorded_us"]) == (1.2, "")
    environment = {"device": {"name": "NVIDIA H200"}, "command": "python -m suite doctor --timer", "packages": {}}
    text = render.markdown(rows, environment)
    assert text.startswith("# The timer on NVIDIA H200\n")
    assert "a\\|b" in text
    assert "2 kernels; the record should hold" in text
    json.loads(json.dumps(render.document(rows, environment), allow_nan=False))
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(render.rich_table(rows, "[title]"))
    assert "[title]" in console.export_text()
    assert render.plain_line(OK).startswith(
        "ok       cuda  spin  recorded 10.000 us  expected 10.000 us (by definition)"
    )
    assert render.plain_line(ABSENT) == "not run  jax  everything  jax not installed"
