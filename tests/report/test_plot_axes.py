"""Every axis of every plot can be read: labels that differ, inside the figure, not over each other."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from report.rows import row, run_of, square

from suite.report.load import Run
from suite.report.plots import Plot, plots_of
from suite.report.plots.figure import SETTINGS
from suite.report.plots.labels import round_numbers, size_name
from suite.results.row import Row


def on_gpu() -> list[Row]:
    """Cases as on a GPU: many sizes, implementations of very different speeds, and the host beside it."""
    rows = [each for size in range(96, 1056, 120) for each in square(size)]
    for n in (1 << 10, 1 << 19, 1 << 20, 1 << 28):
        for name, device in (("torch", "cuda:0"), ("cuda", "cuda:0"), ("numpy", "cpu")):
            us = n / (40_000 if device == "cuda:0" else 500) + 3
            values: dict[str, Any] = {"device": device, "latency_us": us, "program_us": 9 * us, "tflops": n / us / 1e6}
            rows.append(row(name, 1.0, 64, case=f"N={n}", operation="vector_add", gb_per_s=12 * n / us / 1e3, **values))
    return rows


def on_cpu() -> list[Row]:
    """Cases as on a CPU: slow rates, no limit, times that are near each other."""
    rows = []
    for size, us in ((50, 61.0), (100, 82.0)):
        for name, factor in (("torch", 1.0), ("numpy", 1.4), ("jax", 1.2)):
            values: dict[str, Any] = {"gb_per_s": 0.003 / factor, "tflops": 4e-6, "limit": "", "of_limit": None}
            values |= {"device": "cpu", "dispatch_us": us, "latency_us": us * factor, "device_us": us * factor}
            values |= {"device_us_low": us * factor - 0.1, "device_us_high": us * factor + 0.1}
            rows.append(row(name, 1 / factor, size, operation="softmax", case=f"M={size},N=264", **values))
    return rows


@pytest.fixture(scope="module", params=[on_gpu, on_cpu])
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Plot, Figure]]:
    run: Run = run_of(tmp_path_factory.mktemp("axes") / "run", request.param())
    found = []
    with mpl.rc_context(SETTINGS):
        for plot in plots_of(run):
            figure = plot.draw(plot.data)
            FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]  # places the labels
            found.append((plot, figure))
    assert len(found) >= 4
    return found


def axes(drawn: list[tuple[Plot, Figure]]) -> Iterator[tuple[str, Axes]]:
    for plot, figure in drawn:
        yield from ((plot.name, ax) for ax in figure.axes if ax.get_visible())


def shown(axis: Axis) -> list[Text]:
    """The labels of an axis that lie within its view."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [label for place, label in ticks if low <= place <= high and label.get_text() and label.get_visible()]


def test_the_labels_of_an_axis_differ_and_there_are_at_least_two(drawn: list[tuple[Plot, Figure]]) -> None:
    for name, ax in axes(drawn):
        for axis in (ax.xaxis, ax.yaxis):
            texts = [label.get_text() for label in shown(axis)]
            assert len(set(texts)) == len(texts), (name, texts)
            assert len(texts) >= 2 or name.startswith(("heat", "error", "against", "energy", "small")), (name, texts)


def test_every_panel_has_labels_under_it(drawn: list[tuple[Plot, Figure]]) -> None:
    for name, ax in axes(drawn):
        assert len(shown(ax.xaxis)) >= (1 if name.startswith("heat") else 2), (name, ax.get_title())


def test_labels_beside_each_other_do_not_overlap(drawn: list[tuple[Plot, Figure]]) -> None:
    for name, ax in axes(drawn):
        if not name.startswith("heat"):
            boxes = sorted((label.get_window_extent() for label in shown(ax.xaxis)), key=lambda box: float(box.x0))
            assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes)), name


def test_no_text_is_cut_off(drawn: list[tuple[Plot, Figure]]) -> None:
    for plot, figure in drawn:
        width, height = figure.canvas.get_width_height()
        hidden = {text for ax in figure.axes if not ax.get_visible() for text in ax.findobj(Text)}
        outside = {
            text
            for ax in figure.axes
            for axis in (ax.xaxis, ax.yaxis)
            for text in axis.get_ticklabels(which="both")
            if text not in shown(axis)
        }
        for text in set(figure.findobj(Text)) - hidden - outside:
            if text.get_text() and text.get_visible():
                box = text.get_window_extent()
                inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
                assert inside, (plot.name, text.get_text())


def test_axes_say_what_they_measure(drawn: list[tuple[Plot, Figure]]) -> None:
    for name, ax in axes(drawn):
        if name.startswith(("rate", "cpu-against")):
            assert ax.get_xlabel(), name
            assert ax.get_ylabel(), name


@pytest.mark.parametrize(("low", "high"), [(61.0, 115.0), (0.9, 1.1), (8.0, 700.0), (0.1, 3e7), (1e-3, 1e9)])
def test_a_logarithmic_axis_has_some_round_numbers(low: float, high: float) -> None:
    found = round_numbers(low, high)
    assert 3 <= len(found) <= 9
    assert len({f"{each:,g}" for each in found}) == len(found)
    assert all(low <= each <= high for each in found)


def test_a_size_has_a_short_name() -> None:
    assert [size_name(size) for size in (4096, 1 << 17, 100_003)] == ["4096", "2^17", "100003"]


def test_a_roofline_has_a_panel_for_each_framework(drawn: list[tuple[Plot, Figure]]) -> None:
    for plot, figure in drawn:
        if plot.name == "roofline":
            titles = [ax.get_title(loc="left") for ax in figure.axes if ax.get_visible()]
            assert titles == ["Triton", "JAX", "CUDA", "torch", "operations"]


def test_a_page_has_the_texts_of_the_figure(drawn: list[tuple[Plot, Figure]]) -> None:
    """Coordinates are shortened in the page, numbers that a reader sees are not."""
    for plot, figure in drawn:
        texts = set(map(html.unescape, re.findall(r"<text[^>]*>([^<]*)<", plot.inline_svg("r1"))))
        assert texts, plot.name
        assert texts <= {text.get_text() for text in figure.findobj(Text)}, plot.name


def test_small_ratios_are_no_zero(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [*square(1024), row("cuda/slow", 0.00391)])
    (plot,) = (each for each in plots_of(run) if each.name == "steps-matmul")
    assert "(0.00391)" in plot.inline_svg("r1")
