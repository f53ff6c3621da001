"""A user's file as the vendor: `VENDOR` in the file, and `--baseline with/mine`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import call
from external_files import CPU, RIGHT, external, write

from suite.core.errors import UsageError
from suite.results.csv_file import read_rows
from suite.results.own_vendor import rank_against_own
from suite.results.render import View, case_lines
from suite.results.row import Attempt, Row
from suite.runner.device_run import DeviceRun
from suite.runner.plan import plan, refuse_unknown_baseline
from suite.runner.selection import Selection

VIEW = View(baseline="with/mine")
OWN = {"with/mine"}


def row(implementation: str, us: float | None, ratio: float | None = None, **values: Any) -> Row:
    """A row timed to 1%."""
    columns: dict[str, Any] = {"device_us": us, "vs_best": ratio}
    for end, factor in (("low", 0.99), ("high", 1.01)):
        columns[f"device_us_{end}"] = None if us is None else us * factor
        columns[f"vs_best_{end}"] = None if ratio is None else 1.0 if ratio == 1.0 else ratio * factor
    return Row("sigmoid", "N=64", "float32", "ieee", implementation, **(columns | {"device": "cpu"} | values))


def ratios(rows: list[Row]) -> dict[str, float | None]:
    rank_against_own(rows, OWN, 0.05)
    return {each.implementation: each.vs_best for each in rows}


@pytest.mark.parametrize(
    ("line", "vendor", "fault"),
    [
        ("VENDOR = True\n", "mine.py", ""),
        ("VENDOR = 'acme 2.1'\n", "acme 2.1", ""),
        ("VENDOR = False\n", None, "VENDOR must be True or the name of a library, written out (mine.py:1)"),
        ("VENDOR = 'a' + 'b'\n", None, "VENDOR must be True or"),
        ("", None, ""),
    ],
)
def test_a_file_says_that_others_are_ranked_against_it(
    line: str, vendor: str | None, fault: str, tmp_path: Path
) -> None:
    found = external(write(tmp_path / "mine.py", line + RIGHT))
    assert found.vendor == vendor
    assert found.fault.startswith(fault)
    assert bool(found.fault) == bool(fault)


def test_the_fastest_vendor_is_the_one_that_others_are_ranked_against() -> None:
    rows = [row("torch", 100.0, 1.0, vendor="PyTorch"), row("triton", 80.0, 1.25)]
    assert ratios([*rows, row("with/mine", 50.0, 2.0, vendor="mine.py")]) == {
        "torch": pytest.approx(0.5),
        "triton": pytest.approx(0.625),
        "with/mine": 1.0,
    }
    torch, triton = rows
    assert (triton.vs_best_low, triton.vs_best_high) == (
        pytest.approx(1.25 * 0.99 / 2.02),
        pytest.approx(1.25 * 1.01 / 1.98),
    )
    assert torch.vs_best_low == pytest.approx(1 / 2.02)


@pytest.mark.parametrize(
    "mine",
    [
        row("with/mine", 200.0, 0.5, vendor="mine.py"),
        row("with/mine", 50.0, 2.0),
        row("with/mine", 50.0, vendor="mine.py"),
        row("with/mine", 50.0, 2.0, vendor="mine.py", device_us_high=99.0),
        row("with/mine", 50.0, 2.0, vendor="mine.py", status="wrong"),
    ],
    ids=["slower", "no vendor", "disturbs the vendor", "noisy", "wrong"],
)
def test_else_the_vendor_of_the_tree_stays(mine: Row) -> None:
    before = mine.vs_best
    assert ratios([row("torch", 100.0, 1.0, vendor="PyTorch"), row("triton", 80.0, 1.25), mine]) == {
        **{"torch": 1.0, "triton": 1.25},
        "with/mine": before,
    }


def test_without_a_vendor_in_the_tree_the_times_are_compared() -> None:
    rows = [row("numpy", 80.0), row("with/mine", 100.0, vendor="mine.py"), row("triton", None, status="unsupported")]
    assert ratios(rows) == {"numpy": pytest.approx(1.25), "with/mine": 1.0, "triton": None}
    assert rows[0].vs_best_low == pytest.approx(99.0 / 80.8)


def test_a_run_with_a_vendor_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def take_times(self: DeviceRun, by_name: Mapping[str, Row], *_: object) -> None:
        for name, each in by_name.items():
            each.device_us = each.device_us_low = each.device_us_high = {"numpy": 20.0, "with/mine": 10.0}[name]
            each.recorder, each.timed = "wall", Attempt.DONE

    monkeypatch.setattr(DeviceRun, "_time_rows", take_times)
    mine = write(tmp_path / "mine.py", "VENDOR = True\n" + RIGHT)
    arguments = ["vector_add", "--impl", "numpy", "--with", mine, "--shape", "N=1000", "--dtype", "fp32"]
    assert (
        call(monkeypatch, "compare", *arguments, "--inputs", "none", "--device", "cpu", "--out", tmp_path / "out") == 0
    )
    assert "best vendor with/mine: mine.py" in capsys.readouterr().out
    rows = {each.implementation: each for each in read_rows(tmp_path / "out" / "vector_add.csv")}
    assert (rows["with/mine"].vendor, rows["with/mine"].vs_best) == ("mine.py", 1.0)
    assert rows["numpy"].vs_best == 0.5


def test_a_file_is_a_baseline(tmp_path: Path) -> None:
    jobs = plan(Selection(("vector_add",), files=(write(tmp_path / "mine.py", RIGHT),)), CPU)
    refuse_unknown_baseline(jobs, "with/mine")
    with pytest.raises(UsageError, match=r"--baseline 'with/mne' is none of .*; did you mean with/mine\?"):
        refuse_unknown_baseline(jobs, "with/mne")
    lines = case_lines([row("torch", 100.0, 1.0, vendor="PyTorch"), row("with/mine", 50.0, 2.0)], 120, VIEW)
    assert "vs with/mine" in lines[1].plain
    assert "0.500" in lines[2].plain
