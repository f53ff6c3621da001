"""Plots: a report has those for which the run has data, they show all of the data, and files are reproducible."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from report.rows import RECORD, SWEEP, entries, row, run_of, square

from suite.report.load import Run
from suite.report.plots import data_of, plots_of
from suite.report.plots.labels import GAP, spread_apart
from suite.report.plots.series import series_of
from suite.report.style import DARK, LOOKS, PAPER


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("plots") / "run", [*square(512), *square(1024), *SWEEP])


def test_a_full_run_has_every_plot(run: Run) -> None:
    assert {plot.name for plot in plots_of(run)} == {
        "against-vendors", "rate-matmul", "rate-vector_add", "roofline", "heat-matmul", "heat-vector_add",
        "steps-matmul", "cpu-against-gpu", "small-calls", "energy", "error-over-bound",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("missing", "plot"),
    [("joules", "energy"), ("error_ratio", "error-over-bound"), ("dispatch_us", "small-calls"),
     ("vs_best", "heat-matmul"), ("tflops", "roofline")],
)  # fmt: skip
def test_a_plot_without_data_is_left_out(tmp_path: Path, missing: str, plot: str) -> None:
    run = run_of(tmp_path / "run", square(**{missing: None}))
    assert plot not in {each.name for each in plots_of(run)}


def test_an_untimed_run_has_its_errors_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", square(device_us=None, vs_best=None, joules=None))
    assert [plot.name for plot in plots_of(run)] == ["error-over-bound"]


def test_many_shapes_are_drawn_over_their_intensity(tmp_path: Path) -> None:
    """The plot has each framework's best implementation that is no vendor's, for sizes of at least 3 flops per byte."""
    rows = [each for size in range(96, 1056, 120) for each in square(size)]
    plot = next(each for each in plots_of(run_of(tmp_path / "run", rows)) if each.name == "intensity")
    (panel,) = plot.data["panels"]
    assert panel["title"] == "matmul bfloat16"
    assert panel["points"].keys() == {"triton", "cuda"}
    assert panel["points"]["cuda"][0] == [32.0, 1.1]
    assert len(panel["points"]["triton"]) == 8
    assert data_of(plot.file("svg")) == plot.data


def test_a_plot_depends_only_on_its_data(run: Run) -> None:
    """That every plot's file contains them, `test_svg.py` asserts."""
    plot, *_, last = plots_of(run)
    assert plot.file("svg") == plot.file("svg")
    assert data_of(last.file("svg")) == last.data


def test_wrong_rows_have_maps_of_where_they_are_wrong(tmp_path: Path) -> None:
    values = {"status": "wrong", "diagnosis": "as if the last 4 of K were left out (fits 100%)"}
    rows = [
        *square(),
        row("with/edge", error_map="64x64 ...#/...#", **values),
        row("with/all", error_map="64x64 ##/##", **values),
    ]
    plots = [plot for plot in plots_of(run_of(tmp_path / "run", rows)) if plot.name.startswith("wrong-")]
    assert [plot.name for plot in plots] == ["wrong-matmul-M=1024-N=1024-K=1024-bfloat16-ieee-with-edge"]
    assert plots[0].title == "Where with/edge is wrong: matmul M=1024,N=1024,K=1024 bfloat16"
    assert plots[0].data["shares"] == [[0, 0, 0, 1]] * 2
    text = plots[0].inline_svg("r1")
    assert "as if the last 4 of K were left out" in text
    assert "data:image/png" in text


def test_a_plot_in_a_page_has_the_colours_of_the_page_and_a_name_is_no_formula_and_no_markup(tmp_path: Path) -> None:
    hostile = [row("with/$x_{1$<b>&\\frac", 0.5, size) for size in (512, 1024)]
    for plot in plots_of(run_of(tmp_path / "run", [*square(512), *square(1024), *SWEEP, *hostile])):
        text = plot.inline_svg("r1")
        assert "var(--muted)" in text, plot.name
        assert not any(look.color in text for look in LOOKS.values()), plot.name
        assert "<b>" not in text, plot.name
        if plot.name.startswith(("rate-matmul", "heat-matmul", "steps", "small")):
            assert "$x_{1$&lt;b&gt;&amp;\\frac" in text, plot.name
        assert "$" not in text.replace("$x_{1$", ""), plot.name


def test_what_reads_and_writes_alone_has_its_rate_in_bytes(tmp_path: Path) -> None:
    rows = [each for size in (512, 1024) for each in square(size, limit="memory (datasheet)", tflops=0.0)]
    plots = {plot.name: plot.data for plot in plots_of(run_of(tmp_path / "run", rows))}
    for name in ("rate-matmul", "steps-matmul"):
        assert plots[name]["panels"][0]["unit"] == "GB/s"


def test_a_run_on_a_cpu_has_its_rates(tmp_path: Path) -> None:
    rows = [each for size in (512, 1024) for each in square(size, device="cpu", limit="", of_limit=None)]
    assert "rate-matmul" in {plot.name for plot in plots_of(run_of(tmp_path / "run", rows))}


def test_a_png_has_the_data_too(run: Run) -> None:
    plot = next(plots_of(run))
    file = plot.file("png")
    assert file.startswith(b"\x89PNG")
    assert b'"panels":[{"lanes":' in file


def test_cases_that_differ_in_one_size_are_a_series() -> None:
    rows = [*square(512), *square(1024), row(case="M=16,N=512,K=64")]
    (series,) = series_of(entries(rows))
    assert series.axis == "M = N = K"
    assert sorted(series.by_size) == [512, 1024]


def test_a_number_that_is_an_option_is_no_size() -> None:
    rows = [row(operation="sum", case=f"M=64,N=64,axis={axis}") for axis in (0, 1)]
    assert [(entry.dims, entry.options) for entry in entries(rows)] == [
        ({"M": 64, "N": 64}, f"axis={axis}") for axis in (0, 1)
    ]
    assert list(series_of(entries(rows))) == []


def test_other_sizes_are_named_in_the_title() -> None:
    rows = [row(case=f"B=4,H=2,S_q={size},S_k={size},D=64,causal") for size in (512, 1024)]
    (series,) = series_of(entries(rows))
    assert series.title == "bfloat16 causal B=4 H=2 D=64"
    assert series.axis == "S_q = S_k"


@pytest.mark.parametrize("heights", [[0.5, 0.5, 0.5], [0.0, 0.01, 0.02, 0.9], [0.2, 0.21, 0.23, 0.24, 0.5]])
def test_labels_do_not_overlap(heights: list[float]) -> None:
    moved = spread_apart(heights)
    assert moved == sorted(moved)
    assert all(after - before >= GAP - 1e-9 for before, after in itertools.pairwise(moved))


def luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("framework", LOOKS)
def test_every_framework_is_readable_on_light_and_on_dark(framework: str) -> None:
    """WCAG requires a contrast of 4.5:1 for text. Names of lines are text."""
    for color, paper in ((LOOKS[framework].color, PAPER), (LOOKS[framework].dark, DARK[PAPER])):
        low, high = sorted((luminance(color), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, color


def test_no_two_frameworks_look_alike() -> None:
    assert len({look.marker for look in LOOKS.values()}) == len({look.color for look in LOOKS.values()}) == len(LOOKS)


def test_peaks_of_an_unknown_device_draw_no_roof(tmp_path: Path) -> None:
    record = {**RECORD, "device": {"type": "cuda", "name": "a GPU"}}
    run = run_of(tmp_path / "run", square(), record)
    assert "roofline" not in {plot.name for plot in plots_of(run)}


def test_noisy_times_are_marked_where_they_are_not_ranked(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [*square(), row("jax/pallas", 0.9, noisy=True)])
    plots = {plot.name: plot for plot in plots_of(run)}
    heat, steps = plots["heat-matmul"], plots["steps-matmul"]
    assert "A ~ is a noisy time." not in heat.about, "its only row has no ratio, so it has no column"
    assert steps.about.endswith("Without noisy times: jax/pallas.")
    more = [*square(), *square(512), row("jax/pallas", 0.9), row("jax/pallas", 0.9, 512, noisy=True)]
    heat = next(plot for plot in plots_of(run_of(tmp_path / "more", more)) if plot.name == "heat-matmul")
    assert "A ~ is a noisy time." in heat.about
    assert ">~<" in heat.inline_svg("r1")
