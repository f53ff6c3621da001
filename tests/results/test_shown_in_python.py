"""Texts at a Python prompt: `print(frame)` the tables of the command line, `repr` of a time three lines."""

from __future__ import annotations

import re

import pytest

from suite.api import Timed
from suite.results.frame import frame
from suite.results.notebook import MAX_CASES
from tests.results.test_summary import row
from tests.results.test_terminal import ROWS, shown


def test_a_printed_frame_has_the_tables_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        printed = str(frame(ROWS))
        assert printed.startswith("\n".join(shown(width)))
        assert max(map(len, printed.splitlines())) <= width
    heads = re.split(r"\s{2,}", printed.splitlines()[1])
    assert heads == [
        *("implementation", "status", "device us", "vs best vendor", "of limit", "TFLOP/s", "error / bound", "note")
    ]
    assert "cuda" not in str(frame(ROWS)[:1])
    assert "matmul" in repr(frame(ROWS))


def test_other_selections_are_shown_as_any_frame() -> None:
    assert str(frame(ROWS)[["implementation", "status"]]).split()[:2] == ["implementation", "status"]
    assert "Empty ComparisonFrame" in str(frame(ROWS)[:0])


def test_many_cases_are_counted() -> None:
    rows = [row("vector_add", "torch", 1.0, case=f"N={number}") for number in range(MAX_CASES + 3)]
    printed = str(frame(rows))
    assert printed == f"{MAX_CASES + 3} cases, too many for a table each; frame.to_string() has all rows"


def timed(*rows: object) -> list[str]:
    return repr(Timed("wall", "", "cold", rows=rows)).splitlines()  # type: ignore[arg-type]


def test_a_time_is_three_lines() -> None:
    host = {"device": "cpu", "samples": 40, "recorder": "wall", "cache": "cold", "latency_us": 101.0}
    own = row("sigmoid", "with/mine", 100.0, 0.98, vs_best_low=0.97, vs_best_high=0.99, **host)
    assert timed(own, row("sigmoid", "torch", 98.0, 1.0)) == [
        "sigmoid N=64 fp32 on cpu: with/mine 100.0 us (100.0 to 100.0)",
        "beside: torch 98.00 us (98.00 to 98.00); vs best vendor 0.980 (0.970 to 0.990)",
        "40 samples by wall, cache cold; latency 101.0 us",
    ]
    own.noisy, own.remarks = True, "1 other process\non the device"
    assert timed(own) == [
        "sigmoid N=64 fp32 on cpu: with/mine 100.0 us (100.0 to 100.0) noisy",
        "beside: nothing",
        "40 samples by wall, cache cold; latency 101.0 us; noisy: not ranked; 1 other process on the device",
    ]
    assert len(timed()) == len(timed(row("sigmoid", "with/mine"))) == 3
