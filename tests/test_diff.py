"""Two results compared: the verdicts and where they change, what is no evidence, what is refused, what is printed."""

from __future__ import annotations

import io
import json
import math
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.cli import commands as cli
from suite.core.errors import UsageError
from suite.diff import judge as diff
from suite.diff import render as diff_report
from suite.diff.judge import Change, Diff, Estimate, Result
from suite.results.row import Row, to_csv
from suite.timing.stats import median, median_interval

H200 = {"device": {"type": "cuda", "name": "NVIDIA H200"}, "host": {"name": "a CPU"}, "packages": {"torch": "2.11.0"}}
VENDORS = {"torch": "cuBLAS", "torch/cudnn": "cuDNN", "jax": "XLA"}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """`python -m suite ARGUMENTS` in this process; the exit status."""
    monkeypatch.setattr(sys, "argv", ["suite", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def row(implementation: str = "triton", us: float | None = 100.0, width: float = 0.0, **values: Any) -> Row:
    """A row whose interval reaches `width` (relative) to either side, by a clock without ticks."""
    of = Row("matmul", "M=64,N=64,K=64", "float32", "ieee", implementation, "native", recorder="wall", cache="cold")
    of.vendor = VENDORS.get(implementation, "")
    if us is not None:
        of = replace(of, device_us=us, device_us_low=us * (1 - width), device_us_high=us * (1 + width), samples=20)
    return replace(of, **values)


def ranked(times: dict[str, float], width: float = 0.0, **values: Any) -> list[Row]:
    """The rows of one case as one run gives them, ranked against their best vendor line."""
    best = min((name for name in times if name in VENDORS), key=lambda name: times[name])
    rows = []
    for name, us in times.items():
        vs, arm = times[best] / us, 0.0 if name == best else width
        bounds = {"vs_best": vs, "vs_best_low": vs * (1 - arm), "vs_best_high": vs * (1 + arm)}
        rows.append(row(name, us, width, **bounds, **values))
    return rows


def result(rows: list[Row], environment: dict[str, Any] | None = H200) -> Result:
    return Result(Path("results"), {diff.row_key(row): row for row in rows}, environment)


def judged(base: list[Row], new: list[Row], threshold: float = 0.03) -> dict[str, Change]:
    found = diff.judge(result(base), result(new), threshold)
    return {change.base.implementation: change for change in found.changes}


def folder(path: Path, rows: list[Row], environment: dict[str, Any] | None = H200) -> Path:
    """A results folder as `compare` writes one."""
    path.mkdir(parents=True)
    for operation in {row.operation for row in rows}:
        text = to_csv([row for row in rows if row.operation == operation])
        (path / f"{operation}.csv").write_text(text, encoding="utf-8", newline="")
    if environment is not None:
        (path / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    return path


# Verdicts


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
    found = diff.judge(result([rows["base"]]), result([rows["new"]]), 0.03)
    assert found.changes[0].verdict == "AMBIGUOUS"
    assert found.changes[0].notes == (f"{side.upper()}: no 95% interval",)
    assert "ratio 0.3333  us 100.0 -> 300.0" in diff_report.plain_lines(found)[0]


def test_arms_add_as_squares_and_stay_on_their_sides() -> None:
    base = Estimate(math.log(2.0), down=0.03, up=0.3)
    new = Estimate(math.log(1.0), down=0.4, up=0.04)
    ratio = new - base
    assert (ratio.value, ratio.down, ratio.up) == pytest.approx((math.log(0.5), 0.5, 0.05))
    assert (base - new).low == pytest.approx(-ratio.high)
    assert (base - new).high == pytest.approx(-ratio.low)


@pytest.mark.parametrize("tails", ["normal", "skewed", "heavy"])
@pytest.mark.parametrize(("few", "many"), [(6, 6), (6, 40), (20, 20)])
def test_the_interval_of_a_ratio_holds_the_truth(tails: str, few: int, many: int) -> None:
    """Times drawn from one distribution twice: the true ratio is 1. 97.5% and more hold it; 0.95 is 4 sigma off."""
    chance = random.Random(f"{tails} {few} {many}")

    def noise() -> float:
        if tails == "normal":
            return chance.gauss(0, 1)
        return chance.expovariate(1) if tails == "skewed" else chance.gauss(0, 1) / max(1e-3, chance.random())

    def estimate(count: int) -> Estimate:
        times = [100 * math.exp(0.01 * noise()) for _ in range(count)]
        low, high = median_interval(times) or (None, None)
        return -Estimate.of(median(times), low, high)

    ratios = [estimate(few) - estimate(many) for _ in range(600)]
    assert sum(ratio.low <= 0 <= ratio.high for ratio in ratios) >= 0.95 * len(ratios)


@pytest.mark.parametrize(
    ("us", "by_time", "by_vendor"),
    [(1.12, "AMBIGUOUS", "AMBIGUOUS"), (1.184, "SLOWER", "SLOWER"), (1.088, "SAME", "AMBIGUOUS")],
)
def test_one_tick_of_the_clock_is_not_a_change(us: float, by_time: str, by_vendor: str) -> None:
    """1.088 us are 34 ticks of 32 ns, and every sample may say so. Its ratio to another is no better known."""
    base, new = row(us=1.088, recorder="cupti"), row(us=us, recorder="cupti")
    assert judged([base], [new], 0.025)["triton"].verdict == by_time
    pair = [ranked({"torch": 1.088, "triton": time}, recorder="cupti") for time in (1.088, us)]
    change = judged(*pair, 0.025)["triton"]
    assert (change.verdict, change.evidence) == (by_vendor, "vs_best")


# Evidence


def test_drift_that_all_lines_share_is_not_a_change() -> None:
    """Everything takes 2.5% longer, triton 1.5% more than that: 4% by the clock, 1.5% by its vendor line."""
    base = ranked({"torch": 100.0, "triton": 110.0}, 0.002)
    new = ranked({"torch": 102.5, "triton": 110.0 * 1.025 * 1.015}, 0.002)
    change = judged(base, new)["triton"]
    assert (change.verdict, change.evidence, change.control) == ("SAME", "vs_best", "torch")
    unranked = [[replace(r, vs_best=None, vs_best_low=None, vs_best_high=None) for r in rows] for rows in (base, new)]
    change = judged(*unranked)["triton"]
    assert (change.verdict, change.evidence, change.control) == ("SLOWER", "device_us", "")


def test_drift_does_not_hide_a_change() -> None:
    """All times would be 2% shorter; triton's is 2.7% longer instead."""
    base = ranked({"torch": 100.0, "triton": 110.0}, 0.002)
    assert judged(base, ranked({"torch": 98.0, "triton": 113.0}, 0.002))["triton"].verdict == "SLOWER"


def test_the_control_is_judged_by_its_own_time() -> None:
    base, new = ranked({"torch": 100.0, "triton": 110.0}), ranked({"torch": 120.0, "triton": 110.0})
    change = judged(base, new)["torch"]
    assert (change.verdict, change.evidence, change.control) == ("SLOWER", "device_us", "")


def test_another_best_vendor_line_does_not_change_the_control() -> None:
    """torch and jax change places at the top; nothing else happened."""
    base = ranked({"torch": 100.0, "jax": 101.0, "torch/cudnn": 300.0, "triton": 110.0}, 0.001)
    new = ranked({"torch": 101.5, "jax": 100.0, "torch/cudnn": 300.0, "triton": 110.0}, 0.001)
    changes = judged(base, new)
    assert {name: change.control for name, change in changes.items()} == {
        "torch": "jax",
        "jax": "",
        "torch/cudnn": "jax",
        "triton": "jax",
    }
    assert {change.verdict for change in changes.values()} == {"SAME"}
    ratio = changes["triton"].ratio
    assert ratio is not None
    assert math.exp(ratio.value) == pytest.approx((100 / 110) / (101 / 110)), "jax over triton, in both runs"


@pytest.mark.parametrize(
    ("triton_us", "verdict", "ratio"),
    [
        (100.0, "AMBIGUOUS", 1.0),
        (80.0, "AMBIGUOUS", 1.0),
        (150.0, "SLOWER", 100 / 150),
        (60.0, "FASTER", 80 / 60),
    ],
)
def test_with_a_control_that_moved_a_verdict_has_to_hold_by_both(triton_us: float, verdict: str, ratio: float) -> None:
    """The vendor line got a quarter faster. 100 us: unchanged, or overtaken? 80 us: faster, or only carried along?"""
    base = ranked({"jax": 100.0, "triton": 100.0}, 0.002)
    new = ranked({"jax": 80.0, "triton": triton_us}, 0.002)
    change = judged(base, new)["triton"]
    assert (change.verdict, change.evidence) == (verdict, "both")
    assert change.notes[0] == "jax itself is 1.25 times as fast"
    assert change.ratio is not None
    assert math.exp(change.ratio.value) == pytest.approx(ratio), "of the two, the one that claims less"


def test_a_control_of_another_version_is_not_enough() -> None:
    base = ranked({"torch": 100.0, "triton": 110.0}, 0.001, versions="torch 2.11.0")
    new = ranked({"torch": 98.0, "triton": 110.0}, 0.001, versions="torch 2.12.0")
    change = judged(base, new)["triton"]
    assert (change.verdict, change.evidence) == ("SAME", "both")
    assert change.notes[0] == "versions of torch: torch 2.11.0 -> torch 2.12.0"
    assert change.ratio is not None
    assert change.ratio.low < math.log(0.98) < change.ratio.high


def test_a_lower_clock_explains_a_longer_time_and_no_more() -> None:
    base, slow = ranked({"torch": 100.0, "triton": 110.0}, 0.001, clock_sm_mhz=1980.0), {"clock_sm_mhz": 1584.0}
    explained = judged(base, ranked({"torch": 125.0, "triton": 137.5}, 0.001, **slow))
    assert explained["torch"].verdict == "AMBIGUOUS"
    assert explained["torch"].notes == ("SM clock: 1980 -> 1584 MHz",)
    assert (explained["triton"].verdict, explained["triton"].evidence) == ("SAME", "vs_best")
    assert judged(base, ranked({"torch": 140.0, "triton": 154.0}, 0.001, **slow))["torch"].verdict == "SLOWER"
    assert judged(base, ranked({"torch": 90.0, "triton": 99.0}, 0.001, **slow))["torch"].verdict == "FASTER"


@pytest.mark.parametrize("name", ["vs_best", "vs_best_low", "vs_best_high"])
def test_without_an_interval_of_vs_best_the_time_decides(name: str) -> None:
    base, new = ranked({"torch": 100.0, "triton": 110.0}), ranked({"torch": 100.0, "triton": 150.0})
    change = judged(base, [new[0], replace(new[1], **{name: None})])["triton"]
    assert (change.verdict, change.evidence) == ("SLOWER", "device_us")


@pytest.mark.parametrize(
    "values", [{"flags": "suspect: twice the peak"}, {"vs_best_low": None}, {"status": "wrong"}, {"vendor": ""}]
)
def test_a_line_without_a_sound_number_is_no_control(values: dict[str, Any]) -> None:
    base = ranked({"torch": 100.0, "jax": 101.0, "triton": 110.0})
    new = [replace(base[0], **values), *base[1:]]
    assert judged(base, new)["triton"].control == judged(new, base)["triton"].control == "jax"


@pytest.mark.parametrize("apart", [{"case": "M=1,N=1,K=1"}, {"dtype": "float16"}, {"device": "cpu"}])
def test_a_control_is_of_the_same_case_and_device(apart: dict[str, str]) -> None:
    base = ranked({"torch": 100.0, "triton": 110.0}, device="cuda:0")
    other = [replace(r, **apart, vendor="") for r in base]
    found = diff.judge(result([*base, *other]), result([*base, *other]), 0.03)
    assert [change.control for change in found.changes] == ["", "torch", "", ""]


# Statuses


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
    found = diff.judge(result([base]), result([new]), 0.03)
    assert found.changes[0].verdict == verdict
    assert found.changes[0].notes == (() if note is None else (note,))
    assert found.changes[0].ratio is None
    assert found.exit_status == (3 if verdict == "BROKEN" else 0)
    assert len(diff_report.plain_lines(found)) == (0 if note is None else 1)


def test_a_row_that_broke_before_it_was_timed_is_broken() -> None:
    """--no-time in BASE: agreement was known, and is lost."""
    assert judged([row(us=None)], [row(us=None, status="wrong", reason="off")])["triton"].verdict == "BROKEN"


def test_a_time_that_is_not_there_is_no_verdict() -> None:
    change = judged([row(us=100.0)], [row(us=None, reason="not timed: no CUPTI")])["triton"]
    assert (change.verdict, change.notes) == ("UNTIMED", ("no time in NEW: not timed: no CUPTI",))
    change = judged([row(us=None)], [row(us=None)])["triton"]
    assert (change.verdict, change.notes) == ("UNTIMED", ())
    assert judged([row(us=0.0)], [row(us=100.0)])["triton"].verdict == "UNTIMED"


def test_a_time_that_no_device_can_have_is_none() -> None:
    change = judged([row(us=100.0)], [row(us=1.0, flags="suspect: 20 times the peak")])["triton"]
    assert (change.verdict, change.notes) == ("UNTIMED", ("no time in NEW: suspect: 20 times the peak",))


def test_what_puts_a_number_in_doubt_is_told() -> None:
    base = row(us=100.0, config="BLOCK_M=64", clock_sm_mhz=1980.0, flags="clocks were lowered: power cap")
    new = row(us=100.0, config="BLOCK_M=128", clock_sm_mhz=1970.0, reason="no CUPTI")
    assert judged([base], [new])["triton"].notes == (
        "BASE: clocks were lowered: power cap",
        "NEW: no CUPTI",
        "config: BLOCK_M=64 -> BLOCK_M=128",
    )


def test_rows_in_only_one_of_the_two_are_listed() -> None:
    base, new = [row("cuda"), row("cuda/tiled"), row()], [row(), row("jax")]
    found = diff.judge(result(base), result(new), 0.03)
    assert found.exit_status == 0
    assert [r.implementation for r in found.only_in_base] == ["cuda", "cuda/tiled"]
    assert [r.implementation for r in found.only_in_new] == ["jax"]
    assert diff_report.plain_lines(found)[:2] == [
        "only in BASE  matmul M=64,N=64,K=64 float32 ieee  cuda, cuda/tiled",
        "only in NEW  matmul M=64,N=64,K=64 float32 ieee  jax",
    ]
    assert diff_report.summary(found) == "1 rows in both: 1 SAME; 2 only in BASE; 1 only in NEW; threshold 3%"


@pytest.mark.parametrize("what", ["operation", "case", "dtype", "precision", "implementation", "device"])
def test_rows_that_differ_in_what_they_are_do_not_meet(what: str) -> None:
    found = diff.judge(result([row(), row("cuda")]), result([row(), replace(row("cuda"), **{what: "other"})]), 0.03)
    assert len(found.changes) == len(found.only_in_base) == len(found.only_in_new) == 1


# Refused


def test_different_devices_are_refused() -> None:
    a100 = {"device": {"type": "cuda", "name": "NVIDIA A100\n"}}
    with pytest.raises(UsageError, match=r"BASE was measured on NVIDIA H200, NEW on NVIDIA A100; a diff.* the code$"):
        diff.judge(result([row()]), result([row()], a100), 0.03)


def test_the_index_of_a_gpu_does_not_matter_and_its_host_only_for_rows_on_the_host() -> None:
    base = result([row(device="cuda:0"), row("numpy", device="cpu")])
    new = result([row(device="cuda:3"), row("numpy", device="cpu")], {**H200, "host": {"name": "another CPU"}})
    changes = diff.judge(base, new, 0.03).changes
    assert [change.verdict for change in changes] == ["SAME", "UNTIMED"]
    assert changes[1].notes == ("on a CPU in BASE, on another CPU in NEW",)
    lines = diff_report.plain_lines(diff.judge(base, new, 0.03))
    assert "  numpy on cpu  " in lines[0]
    assert "  triton  " in lines[1]
    assert [change.verdict for change in diff.judge(base, base, 0.03).changes] == ["SAME", "SAME"]
    cpu = {"device": {"type": "cpu", "name": "a CPU"}}
    there, here = (result([row(device="cpu")], {**cpu, "host": {"name": name}}) for name in ("there", "here"))
    found = diff.judge(there, here, 0.03)
    assert found.counts["SAME"] == 1
    assert "on cpu" not in diff_report.plain_lines(found)[0]


@pytest.mark.parametrize(("what", "then", "now"), [("recorder", "cupti", "wall"), ("cache", "cold", "warm")])
def test_different_conditions_are_refused_by_name(what: str, then: str, now: str) -> None:
    names = ["triton", "cuda", "cuda/tiled", "numpy"]
    base, new = ([row(name, **{what: value}) for name in names] for value in (then, now))
    case = "matmul M=64,N=64,K=64 float32 ieee"
    match = f"{what} is {then} in BASE and {now} in NEW for {case} triton, {case} cuda, {case} cuda/tiled and 1 more"
    with pytest.raises(UsageError, match=re.escape(match)):
        judged(base, new)
    untimed = [replace(r, device_us=None, **{what: ""}) for r in new]
    assert {change.verdict for change in judged(base, untimed).values()} == {"UNTIMED"}, "no times, no conditions"


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(UsageError, match="have no row in common"):
        judged([row("cuda")], [row("triton")])


@pytest.mark.parametrize("threshold", ["0", "1", "-0.03", "3", "nan", "inf", "wide"])
def test_a_threshold_outside_0_and_1_is_refused(
    threshold: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path / "a", [row()])
    assert run(monkeypatch, "diff", path, path, "--threshold", threshold) == 2
    assert capsys.readouterr().out == ""


GOOD = to_csv([row("torch", 100.0, 0.01), row("triton", 123.0, 0.01)])
DAMAGED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "No columns to parse"),
    "other": ("a,b\n1,2\n", "no column operation"),
    "binary": (bytes(range(256)) * 4, "t.csv"),
    "unclosed": (GOOD + '"', "t.csv"),
    "cut": (GOOD[: GOOD.rindex("cold")], "row 2: seed is missing"),
    "more-fields": (GOOD + "x," * 99, "t.csv"),
    "text": (GOOD.replace("123.0", "fast"), "row 2: device_us is 'fast', which nothing measures"),
    "negative": (GOOD.replace("123.0", "-123.0"), "row 2: device_us is -123.0, which nothing measures"),
    "infinite": (GOOD.replace("123.0", "inf"), "row 2: device_us is inf, which nothing measures"),
    "interval": (GOOD.replace("123.0", "99.0"), "row 2: device_us is 99.0, outside its interval from 121.77 to 124.23"),
    "status": (GOOD.replace(",ok,", ",\x1b[31mfine,"), "row 1: status is '\\x1b[31mfine'"),
    "twice": (GOOD + GOOD.splitlines()[1] + "\n", "row 3: there is another row like it"),
}


@pytest.mark.parametrize(("text", "complaint"), DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("side", ["base", "new"])
def test_a_damaged_table_is_one_line_and_exit_2(
    text: str | bytes,
    complaint: str,
    side: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = folder(tmp_path / "good", [row()])
    damaged = tmp_path / "t.csv"
    damaged.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run(monkeypatch, "diff", *((damaged, good) if side == "base" else (good, damaged))) == 2
    assert_one_error(capsys, complaint)


def assert_one_error(capsys: pytest.CaptureFixture[str], complaint: str) -> None:
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert complaint in printed.err


def test_what_is_no_result_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = folder(tmp_path / "good", [row()])
    assert run(monkeypatch, "diff", good, tmp_path / "nothing") == 2
    assert_one_error(capsys, "nothing: no such file or folder")
    assert run(monkeypatch, "diff", good, tmp_path / ("x" * 300)) == 2
    assert_one_error(capsys, "cannot be read: File name too long")
    (tmp_path / "bare").mkdir()
    assert run(monkeypatch, "diff", tmp_path / "bare", good) == 2
    assert_one_error(capsys, "bare: no results here: the folder holds no .csv")
    (tmp_path / "bare" / "folder.csv").mkdir()
    assert run(monkeypatch, "diff", tmp_path / "bare", good) == 2
    assert_one_error(capsys, "folder.csv: not a readable results table")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"device": 3}', '{"device": {"name": null}}', "[" * 100_000, b"\xff\xfe"]
)
def test_a_damaged_environment_is_one_line_and_exit_2(
    text: str | bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = folder(tmp_path / "good", [row()]), folder(tmp_path / "bad", [row()])
    (bad / "environment.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run(monkeypatch, "diff", good, bad) == 2
    assert_one_error(capsys, "environment.json: not a readable environment record")


# The command


def test_exit_status_is_0_or_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = folder(tmp_path / "base", [row(us=100.0), replace(row("cuda"), operation="sigmoid")])
    for name, us, status in (("same", 101.0, 0), ("faster", 50.0, 0), ("slower", 150.0, 3)):
        new = folder(tmp_path / name, [row(us=us), replace(row("cuda"), operation="sigmoid")])
        assert run(monkeypatch, "diff", base, new) == status
        assert name.upper() in capsys.readouterr().out
        assert run(monkeypatch, "diff", base, new, "--threshold", "0.9") == 0
        assert run(monkeypatch, "diff", base / "matmul.csv", new / "matmul.csv") == status
    broken = folder(tmp_path / "broken", [row(us=None, status="error", reason="died"), row("numpy", 1.0)])
    capsys.readouterr()
    assert run(monkeypatch, "diff", base, broken) == 3
    printed = capsys.readouterr()
    assert "BROKEN     matmul M=64,N=64,K=64 float32 ieee  triton  ok -> error: died\n" in printed.out
    assert "only in BASE  sigmoid M=64,N=64,K=64 float32 ieee  cuda\n" in printed.out
    assert printed.err == "1 rows in both: 1 BROKEN; 1 only in BASE; 1 only in NEW; threshold 3%\n"
    assert run(monkeypatch, "diff", broken, base) == 0
    assert "FIXED" in capsys.readouterr().out


def test_plain_lines_end_with_the_worst(tmp_path: Path) -> None:
    times = {"a": 200.0, "b": 100.0, "c": 50.0, "d": 103.0}
    base = [row(name, 100.0, 0.001) for name in times]
    found = diff.judge(result(base), result([row(name, us, 0.001) for name, us in times.items()]), 0.03)
    lines = diff_report.plain_lines(found)
    assert [line.split()[0] for line in lines] == ["SAME", "FASTER", "AMBIGUOUS", "SLOWER"]
    assert lines[-1] == (
        "SLOWER     matmul M=64,N=64,K=64 float32 ieee  a  "
        "ratio 0.5000 (0.4993 to 0.5007)  us 100.0 -> 200.0  by device_us"
    )


def test_an_unknown_device_is_told_and_other_changes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, bare = folder(tmp_path / "base", [row()]), folder(tmp_path / "bare", [row()], None)
    assert run(monkeypatch, "diff", base, bare) == 0
    assert capsys.readouterr().err == (
        "the device of NEW is not known: no environment.json beside its tables\n1 rows in both: 1 SAME; threshold 3%\n"
    )
    other = {**H200, "packages": {"torch": "2.12.0", "triton": "3.7.1"}, "git": {"commit": "abc"}}
    new = folder(tmp_path / "new", [row()], other)
    assert run(monkeypatch, "diff", base, new) == 0
    assert "also changed: torch 2.11.0 -> 2.12.0, git commit none -> abc, triton none -> 3.7.1\n" in (
        capsys.readouterr().err
    )


def test_json_is_one_document_with_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [*ranked({"torch": 100.0, "triton": 110.0}, 0.01), row("cuda"), row("numpy", 1e300)]
    new = [*ranked({"torch": 100.0, "triton": 220.0}, 0.01), row("numpy", 1e-300), row("cuda/tiled")]
    new[0] = replace(new[0], device_us_low=None)
    paths = folder(tmp_path / "base", base), folder(tmp_path / "new", new)
    assert run(monkeypatch, "diff", *paths, "--json") == 3
    printed = capsys.readouterr()
    document = json.loads(printed.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert printed.err.count("\n") == 1
    assert set(document) == {
        "base",
        "new",
        "threshold",
        "counts",
        "exit_status",
        "remarks",
        "rows",
        "only_in_base",
        "only_in_new",
    }
    assert document["base"] == {"path": str(paths[0]), "device": "NVIDIA H200"}
    assert document["threshold"] == 0.03
    assert document["exit_status"] == 3
    assert document["counts"] == {**dict.fromkeys(diff.VERDICTS, 0), "AMBIGUOUS": 1, "SLOWER": 1, "FASTER": 1}
    assert [r["implementation"] for r in document["only_in_base"]] == ["cuda"]
    assert [r["implementation"] for r in document["only_in_new"]] == ["cuda/tiled"]
    rows = {r["implementation"]: r for r in document["rows"]}
    assert set(rows["triton"]) == {
        *("operation", "case", "dtype", "precision", "implementation", "device"),
        *("verdict", "evidence", "control", "ratio", "ratio_low", "ratio_high", "base", "new", "notes"),
    }
    assert rows["triton"]["verdict"] == "SLOWER"
    assert (rows["triton"]["evidence"], rows["triton"]["control"]) == ("vs_best", "torch")
    assert rows["triton"]["ratio_low"] < rows["triton"]["ratio"] < rows["triton"]["ratio_high"] < 1 / 1.03
    assert rows["triton"]["ratio"] == pytest.approx(0.5)
    assert rows["triton"]["new"]["device_us"] == 220.0
    assert rows["torch"]["verdict"] == "AMBIGUOUS"
    assert rows["torch"]["ratio"] == 1
    assert rows["torch"]["ratio_low"] is rows["torch"]["ratio_high"] is None
    assert run(monkeypatch, "diff", *paths, "--json", "--markdown") == 2


EVIL = "x|y `c` <img src=x> [red]*b*[/red] [a](b)\x1b[31m\nnext\u202e"


def evil() -> Diff:
    base = [row(EVIL, 100.0, config=EVIL), row(us=100.0), row("gone" + EVIL)]
    new = [row(EVIL, 200.0, flags=EVIL), row(us=100.0)]
    return diff.judge(result(base), result(new), 0.03)


def test_text_cannot_become_markdown() -> None:
    text = diff_report.markdown(evil())
    assert "x\\|y \\`c\\` &lt;img src=x&gt; \\[red\\]\\*b\\*" in text
    assert "<img" not in text
    assert not re.search(r"[\x1b\u202e]", text)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {len(diff_report.HEADS) + 1}
    assert len(table) == 2 * 3, "head, rule and one row: what changed, and what is the same"
    assert text.index("SLOWER    |") < text.index("<details><summary>1 SAME</summary>\n\n|") < text.index("gonex")


def test_text_cannot_become_rich_markup_or_steer_a_terminal() -> None:
    from rich.console import Console

    screen = io.StringIO()
    diff_report.show(evil(), Console(file=screen, width=400, force_terminal=True, color_system=None))
    shown = screen.getvalue()
    assert "[red]*b*[/red]" in shown
    assert "SLOWER" in shown
    for text in (shown, "\n".join(diff_report.plain_lines(evil()))):
        assert "\u202e" not in text
        assert "\x1b[31m" not in text
    assert len(diff_report.plain_lines(evil())) == 3


def test_a_terminal_gets_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "200")
    path = folder(tmp_path / "a", ranked({"torch": 100.0, "triton": 110.0}))
    assert run(monkeypatch, "diff", path, path) == 0
    shown = capsys.readouterr().out
    assert "speed of NEW over BASE" in shown
    assert "95% interval" in shown
    assert "vs torch" in shown


def test_markdown_on_stdout_is_only_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path / "a", [row()])
    assert run(monkeypatch, "diff", path, path, "--markdown") == 0
    assert capsys.readouterr().out.startswith(
        "Speed of NEW over BASE on NVIDIA H200. 1 rows in both: 1 SAME; threshold"
    )


# Properties

IMPLEMENTATIONS = ["torch", "torch/cudnn", "jax", "triton", "cuda", "numpy"]
times = st.dictionaries(st.sampled_from(IMPLEMENTATIONS), st.floats(0.5, 1e6), min_size=1)
clocks = st.sampled_from([None, 1980.0, 1755.0, 1200.0])


@st.composite
def tables(draw: st.DrawFn, names: frozenset[str] | None = None) -> list[Row]:
    """What one run may give: some rows without intervals, some that failed."""
    found = draw(times if names is None else st.fixed_dictionaries({n: st.floats(0.5, 1e6) for n in sorted(names)}))
    recorded = {"clock_sm_mhz": draw(clocks), "recorder": "cupti", "versions": draw(st.sampled_from(["1", "2"]))}
    vendor = any(name in VENDORS for name in found)
    rows = []
    for plain in ranked(found) if vendor else [row(name, us) for name, us in found.items()]:
        low, high = draw(st.floats(0.3, 1)), draw(st.floats(1, 3))
        values: dict[str, Any] = {f"device_us_{end}": plain.device_us * f for end, f in (("low", low), ("high", high))}
        if plain.vs_best not in (None, 1.0):
            values |= {f"vs_best_{end}": plain.vs_best * f for end, f in (("low", low), ("high", high))}
        fate = draw(st.sampled_from(["ok"] * 6 + ["no interval", "untimed", "wrong", "unsupported"]))
        if fate == "no interval":
            values |= dict.fromkeys(["device_us_low", "device_us_high", "vs_best_low", "vs_best_high"])
        elif fate != "ok":
            values |= dict.fromkeys(["device_us", "vs_best"])
            values["status"] = "ok" if fate == "untimed" else fate
        rows.append(replace(plain, **recorded, **values))
    return rows


@settings(deadline=None, max_examples=100)
@given(tables(), st.floats(0.001, 0.5))
def test_a_table_and_itself_differ_in_nothing(rows: list[Row], threshold: float) -> None:
    found = diff.judge(result(rows), result(rows), threshold)
    assert {change.verdict for change in found.changes} <= {"SAME", "AMBIGUOUS", "UNTIMED"}
    assert found.exit_status == 0
    assert all(change.ratio is None or change.ratio.value == 0 for change in found.changes)


OPPOSITE = {"FASTER": "SLOWER", "SLOWER": "FASTER", "BROKEN": "FIXED", "FIXED": "BROKEN"}


@settings(deadline=None, max_examples=150)
@given(st.data(), st.floats(0.001, 0.5))
def test_swapping_the_runs_swaps_the_verdicts(data: st.DataObject, threshold: float) -> None:
    base = data.draw(tables())
    new = data.draw(tables(frozenset(row.implementation for row in base)))
    there, back = judged(base, new, threshold), judged(new, base, threshold)
    for name, change in there.items():
        other = back[name]
        assert other.verdict == OPPOSITE.get(change.verdict, change.verdict)
        assert (other.evidence, other.control) == (change.evidence, change.control)
        if change.ratio is not None:
            assert other.ratio is not None
            assert other.ratio.value == pytest.approx(-change.ratio.value)
            assert (other.ratio.low, other.ratio.high) == pytest.approx((-change.ratio.high, -change.ratio.low))


@settings(deadline=None, max_examples=50)
@given(times, st.floats(0, 0.1), st.sampled_from([2.0, 0.5]))
def test_twice_the_time_is_slower_and_half_is_faster(found: dict[str, float], width: float, factor: float) -> None:
    """Without vendor lines all rows say so. With one it says so itself, and the others cannot tell it from drift."""
    ours = {name: us for name, us in found.items() if name not in VENDORS}
    verdict = "SLOWER" if factor == 2 else "FASTER"
    base, new = ([row(name, us * by, width) for name, us in ours.items()] for by in (1.0, factor))
    if ours:
        assert {change.verdict for change in judged(base, new).values()} == {verdict}
    if len(ours) == len(found):
        return
    scaled = {name: us * factor for name, us in found.items()}
    changes = judged(ranked(found, width), ranked(scaled, width))
    expected = {name: "AMBIGUOUS" if change.control else verdict for name, change in changes.items()}
    assert {name: change.verdict for name, change in changes.items()} == expected
    assert verdict in expected.values()


@settings(deadline=None, max_examples=50)
@given(times.filter(lambda found: "triton" in found and "jax" in found), st.floats(0, 0.05))
def test_a_kernel_that_takes_twice_as_long_as_before_is_slower(found: dict[str, float], width: float) -> None:
    """Only our own lines change; the vendors' lines are what they were."""
    scaled = {name: us if name in VENDORS else 2 * us for name, us in found.items()}
    changes = judged(ranked(found, width), ranked(scaled, width), 0.2)
    for name, change in changes.items():
        assert change.verdict == ("SAME" if name in VENDORS else "SLOWER")
        assert change.evidence == ("vs_best" if change.control else "device_us")
