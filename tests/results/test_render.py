"""Rows as Markdown and text: escaped, with the fastest row marked; summary and exit status of a run."""

from __future__ import annotations

import math
from typing import Any

import pytest

from suite.results import render
from suite.results.groups import cases, standing
from suite.results.row import Row
from tests.results.rows import row

TIMED = {"recorder": "cupti"}


def test_markdown_marks_the_fastest_row_and_escapes_text_from_kernels() -> None:
    rows = [row(device_us=2.0, **TIMED), row("cuda/tiled", device_us=1.0, **TIMED)]
    rows.append(row("triton", status="error", reason="<script>| *x* [a](b)\nnext"))
    environment = {"device": {"name": "NVIDIA H200"}, "command": "suite", "packages": {"torch": "2"}}
    text = render.markdown(rows, environment)
    assert text.startswith("# matmul on NVIDIA H200\n")
    assert "**cuda/tiled**" in text
    assert "**torch**" not in text
    assert "&lt;script&gt;\\| \\*x\\* \\[a\\](b) next" in text


def test_an_empty_table_is_rendered() -> None:
    assert render.markdown([], {}).startswith("# empty on unknown\n")


def test_rows_of_different_recorders_are_not_ranked_together() -> None:
    assert standing([row(device_us=2.0, recorder="cupti"), row("numpy", device_us=1.0, recorder="wall")]).winner is None
    assert standing([row(device_us=2.0, **TIMED)]).winner is None, "one row alone is not the fastest of anything"


def test_rows_are_grouped_by_case_in_order() -> None:
    other = Row("sigmoid", "N=1", "float32", "ieee", "torch")
    rows = [row("a"), other, row("b")]
    assert cases(rows) == [[rows[0], rows[2]], [other]]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, 3, ""),
        (math.nan, 3, ""),
        (math.inf, 3, "inf"),
        (0.0, 3, "0"),
        (1234.5, 4, "1,234"),
        (0.0123456, 3, "0.0123"),
        (177.96, 4, "178.0"),
        (1e-9, 3, "1.00e-09"),
        (3.2e12, 3, "3.20e+12"),
        (0.995, 3, "0.995"),
    ],
)
def test_numbers_are_shown_with_significant_digits(value: float | None, digits: int, text: str) -> None:
    assert render.number(value, digits) == text


def test_the_summary_counts_statuses_the_most_frequent_first() -> None:
    rows = [row("a", status="unsupported"), row("b"), row("c")]
    assert render.summary(rows) == "3 rows: 2 ok, 1 unsupported"


def test_exit_status_is_1_for_failures_only() -> None:
    assert render.exit_status([row(), row(status="unsupported"), row(status="unavailable")]) == 0
    for status in ("wrong", "error", "timeout"):
        assert render.exit_status([row(), row(status=status)]) == 1
    assert render.exit_status([row(device_us=1.0, suspect=True)]) == 1


SLOW = {
    "highest clock": ({"clock_reasons": "power cap", "clock_of_max": 0.99}, "2.000", ""),
    "power cap": (
        {"clock_reasons": "power cap", "clock_of_max": 0.731},
        "2.000 ^",
        "^ the clock was below its highest during this case: kernels that draw less power run at a higher one "
        "(73% of the highest SM clock; power cap)",
    ),
    "heat": (
        {"clock_reasons": "thermal slowdown by software", "clocks_lowered": True},
        "2.000 !",
        "! heat or the power supply lowered the clocks during this case: its times are too long "
        "(thermal slowdown by software)",
    ),
}


@pytest.mark.parametrize(("values", "cell", "remark"), SLOW.values(), ids=SLOW.keys())
def test_lowered_clocks_are_marked_and_explained_in_every_form(values: dict[str, Any], cell: str, remark: str) -> None:
    rows = [row(device_us=2.0, **TIMED, **values), row("cuda", status="error", **values)]
    _, _, second, first, *under = [line.plain for line in render.case_lines(rows, 300)]
    assert first.split() == ["torch", "ok", *cell.split()]
    assert second.split() == ["cuda", "error"], "a row without a time has no mark"
    assert under == ([remark] if remark else [])
    text = render.markdown(rows, {})
    assert f" {cell} |" in text
    assert not remark or f"\n\n{remark}.\n" in text


def test_the_kernels_that_ran_are_shown() -> None:
    rows = [
        row(device_us=2.0, vendor="cuBLAS", kernels_run="nvjet_hsh [132 x 384]; memset", occupancy=0.1875, **TIMED),
        row("cuda", device_us=1.0, kernels_run="k" * 200, **TIMED),
    ]
    text = render.markdown(rows, {})
    assert "k" * 97 + "..." in text
    assert "| 0.19 |" in " ".join(text.split())
    assert "nvjet\\_hsh \\[132 x 384\\]; memset " in render.markdown(rows, {})
    assert render.case_lines(rows, 120)[-1].plain == "torch ran nvjet_hsh [132 x 384]; memset"
