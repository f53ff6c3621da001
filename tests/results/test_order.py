"""Wrong rows come first in every table for people, and the rest keeps its order."""

from __future__ import annotations

import pytest
from results.test_terminal import ROWS, best_vendor, names, row, shown

from suite.results.order import wrong_first
from suite.results.render import markdown
from suite.results.render.view import View

FAILED = [
    best_vendor(178.9),
    row("numpy", status="timeout"),
    row("cuda", 0.5, 300.0, suspect=True),
    row("triton/persistent", status="wrong"),
    row("triton", 186.4, 0.96),
]
ORDER = ["triton/persistent", "numpy", "cuda", "torch", "triton"]


def test_wrong_rows_come_first_then_other_failures() -> None:
    assert [each.implementation for each in wrong_first(FAILED)] == ORDER


@pytest.mark.parametrize("sort", ["", "device_us", "implementation"])
def test_a_terminal_has_wrong_rows_on_top_however_it_is_sorted(sort: str) -> None:
    assert names(shown(200, View(sort=sort)))[0] == "cuda/warp_specialized"
    first, *others = names(shown(200, View(sort=sort), FAILED))[:3]
    assert (first, set(others)) == (ORDER[0], set(ORDER[1:3]))


def test_markdown_has_wrong_rows_on_top_and_the_same_fastest_row() -> None:
    lines = [line for line in markdown(ROWS, {}).splitlines() if line.startswith("|")]
    assert lines[2].startswith("| cuda/warp\\_specialized ")
    assert sum(line.startswith("| **") for line in lines) == 1
    assert any(line.startswith("| **cuda/wgmma**") for line in lines)
