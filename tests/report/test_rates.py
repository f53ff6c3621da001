"""Rates over sizes: noisy points stay and are marked, gaps stay gaps, every arithmetic has its own limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from report.rows import entries, row, run_of, square

from suite.report.plots import Plot, plots_of
from suite.report.plots.figure import SETTINGS
from suite.report.plots.series import series_of
from suite.report.plots.units import unit_of
from suite.report.style import PAPER
from suite.results.row import Row

SIZES = (512, 1024, 2048)
NOISY: dict[str, Any] = {"noisy": True, "device_us_low": 50.0, "device_us_high": 200.0}


def rates(path: Path, rows: list[Row]) -> Plot:
    return next(plot for plot in plots_of(run_of(path / "run", rows)) if plot.name.startswith("rate-"))


def figure(plot: Plot) -> Figure:
    with mpl.rc_context(SETTINGS):
        return plot.draw(plot.data)


def sweep(**middle: Any) -> list[Row]:
    """Rows of torch and triton at three sizes. `middle` is set on triton's row at the size in the middle."""
    rows = [row("torch", size=size) for size in SIZES]
    return [*rows, *(row("triton", 0.9, size, **(middle if size == 1024 else {})) for size in SIZES)]


def test_a_noisy_rate_is_in_the_line_hollow_and_with_its_interval(tmp_path: Path) -> None:
    plot = rates(tmp_path, sweep(**NOISY))
    before, noisy, after = plot.data["panels"][0]["lines"]["triton"]
    assert (len(before), len(noisy), len(after)) == (2, 4, 2)
    size, middle, low, high = noisy
    assert size == 1024
    assert (low / middle, high / middle) == pytest.approx((100 / 0.9 / 200, 100 / 0.9 / 50), rel=1e-3)
    assert "Hollow marks are noisy" in plot.about
    (ax,) = (each for each in figure(plot).axes if each.get_visible())
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == PAPER and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in hollow] == [[1024]]
    assert any(list(line.get_ydata()) == [low, high] for line in ax.lines)
    assert any(list(line.get_xdata()) == list(SIZES) for line in ax.lines), "the line goes through the noisy point"


def test_a_line_is_broken_where_an_implementation_has_no_time(tmp_path: Path) -> None:
    plot = rates(tmp_path, [*sweep(status="wrong"), row("torch", size=4096), row("triton", 0.9, 4096)])
    assert [point[0] for point in plot.data["panels"][0]["lines"]["triton"]] == [512, 2048, 4096]
    assert "A line has a gap where" in plot.about
    (ax,) = (each for each in figure(plot).axes if each.get_visible())
    drawn = [list(line.get_xdata()) for line in ax.lines if line.get_linestyle() == "-"]
    assert [512, 2048, 4096] not in drawn
    assert [2048, 4096] in drawn


def test_a_row_of_another_arithmetic_has_its_own_limit(tmp_path: Path) -> None:
    """`cuda/split` computes float32 by six products in bfloat16 (`ARITHMETIC` of its file)."""
    values: dict[str, Any] = {"dtype": "float32"}
    rows = [row("torch", size=size, of_limit=0.7, **values) for size in SIZES]
    rows += [row("cuda/split", 2.0, size, of_limit=0.5, **values) for size in SIZES]
    plot = rates(tmp_path, rows)
    (panel,) = plot.data["panels"]
    assert panel["limits"].keys() == {"float32 limit", "6 x bfloat16 limit"}
    for name, limit in (("torch", "float32 limit"), ("cuda/split", "6 x bfloat16 limit")):
        for (_, rate), (_, most) in zip(panel["lines"][name], panel["limits"][limit], strict=True):
            assert rate < most


def test_a_limit_is_mentioned_only_where_one_is_drawn(tmp_path: Path) -> None:
    assert "limit" in rates(tmp_path / "a", sweep()).about
    rows = [each for size in SIZES for each in square(size, device="cpu", limit="", of_limit=None)]
    assert "limit" not in rates(tmp_path / "b", rows).about


def test_a_product_without_a_known_limit_has_its_rate_in_flops_by_its_largest_size(tmp_path: Path) -> None:
    rows = [each for size in (32, 1024) for each in square(size, device="cpu", limit="", of_limit=None)]
    assert rates(tmp_path, rows).data["panels"][0]["unit"] == "TFLOP/s"


@pytest.mark.parametrize(
    ("highest", "in_flops", "expected"),
    [(4.8e12, False, (1e12, "TB/s")), (9.9e11, False, (1e9, "GB/s")), (3e6, True, (1e6, "MFLOP/s")),
     (0.0, True, (1.0, "FLOP/s"))],
)  # fmt: skip
def test_a_unit_leaves_at_least_one_before_the_point(
    highest: float, in_flops: bool, expected: tuple[float, str]
) -> None:
    assert unit_of([highest, highest / 7], in_flops) == expected


def test_a_case_with_sizes_that_happen_to_be_equal_is_in_the_series() -> None:
    rows = [row(operation="softmax", case=f"M=1024,N={size}") for size in (256, 1024, 4096)]
    (series,) = series_of(entries(rows))
    assert (series.axis, sorted(series.by_size)) == ("N", [256, 1024, 4096])
