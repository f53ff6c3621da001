"""Plots the CPU against the GPU by size, and the cost of a call for small sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.load import Entry
from suite.report.plots.figure import Margins, Plot, canvas, grid, rounded, text_inches
from suite.report.plots.labels import Label, label_line_ends, plain_numbers, round_numbers, sizes, title
from suite.report.plots.lanes import ticks
from suite.report.plots.series import Series, series_of
from suite.report.ranking import CaseResult
from suite.report.style import LOOKS, MUTED, look
from suite.results.row import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CPU, GPU = LOOKS["numpy"].color, LOOKS["cuda"].color
COSTS: dict[str, tuple[Callable[[Row], float | None], str, str]] = {
    "device": (lambda row: row.device_us, "|", "time on the device"),
    "dispatch": (lambda row: row.dispatch_us, "o", "until the call returns"),
    "latency": (lambda row: row.latency_us, "D", "until the result is ready"),
    "graph": (lambda row: row.graph_us, "x", "in a replayed CUDA graph"),
}
MAX_PANELS = 8


def cpu_against_gpu(entries: Sequence[Entry]) -> Iterator[Plot]:
    """The shortest time of a whole call on each device, with and without copies, if a table has rows of both.

    Noisy rows count: the curves are decades apart, and a device without its fastest row would lose.
    """
    both = {(entry.table, *entry.row.case_key) for entry in entries if entry.row.device == "cpu"}
    shared = [entry for entry in entries if entry.timed and (entry.table, *entry.row.case_key) in both]
    if len({entry.row.device == "cpu" for entry in shared}) < 2:
        return
    lines_of: dict[str, dict[str, Any]] = {}
    for series in series_of(shared):
        panel = lines_of.setdefault(f"{series.operation} {series.title}", {"axis": series.axis, "lines": {}})
        panel["lines"] |= _shortest_times(series)
    panels = [{"title": title, **panel} for title, panel in lines_of.items() if len(panel["lines"]) > 1]
    if panels:
        about = (
            "The least time of a call on the CPU and on the GPU by size, with data in place and with copies both ways."
        )
        yield Plot("cpu-against-gpu", "CPU against GPU by size", about, {"panels": panels[:MAX_PANELS]}, draw_sizes)


def _shortest_times(series: Series) -> dict[str, list[list[float | None]]]:
    on_cpu = all(entry.row.device == "cpu" for rows in series.by_size.values() for entry in rows)
    columns: dict[str, Callable[[Row], float | None]] = {"CPU": lambda row: row.latency_us}
    if not on_cpu:
        columns = {
            "GPU, data in place": lambda row: row.latency_us,
            "GPU, copies (pinned)": lambda row: row.program_pinned_us,
            "GPU, copies (pageable)": lambda row: row.program_us,
        }
    found = {}
    for name, column in columns.items():
        points = []
        for size, rows in sorted(series.by_size.items()):
            known = [value for entry in rows if (value := column(entry.row)) is not None]
            points += [[float(size), rounded(min(known))]] if known else []
        if points:
            found[name] = points
    return found


def draw_sizes(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    names = [name for panel in panels for name in panel["lines"]]
    wide = 5.8 if len(panels) == 1 else 2.9
    figure, axes = grid(len(panels), (wide, 2.6), Margins(1.0, 0.3 + text_inches(names, 7.5), 0.35, 0.55))
    for panel, ax in zip(panels, axes, strict=True):
        labels, dashes = [], iter(("-", "--", ":"))
        for name, points in panel["lines"].items():
            x, y = zip(*points, strict=True)
            color = CPU if name == "CPU" else GPU
            ax.plot(x, y, "-" if name == "CPU" else next(dashes), color=color, marker="o", markersize=3.5)
            labels.append(Label(x[-1], y[-1], name, color))
        ax.set(xscale="log", yscale="log", xlabel=panel["axis"], ylabel="us for a call")
        ax.set_ylim(*_axis_ends(panel))
        plain_numbers(ax.yaxis)
        title(ax, panel["title"], wide)
        sizes(ax, sorted({int(point[0]) for points in panel["lines"].values() for point in points}))
        label_line_ends(ax, labels)
    return figure


def small_calls(results: Sequence[CaseResult]) -> Iterator[Plot]:
    """The cost of a call on the smallest case of each operation: time on the device, dispatch, latency."""
    smallest: dict[str, CaseResult] = {}
    for result in results:
        if result.fastest is not None and any(entry.ranked and entry.row.dispatch_us for entry in result.entries):
            known = smallest.get(result.first.row.operation)
            if known is None or _work(result) < _work(known):
                smallest[result.first.row.operation] = result
    panels = [{"title": result.first.case_name, "rows": _costs(result)} for result in smallest.values()]
    if panels:
        about = (
            "For the smallest case of each operation: time on the device, until the call returns, "
            "until its result is ready."
        )
        yield Plot("small-calls", "The cost of a small call", about, {"panels": panels[:MAX_PANELS]}, draw_costs)


def _work(result: CaseResult) -> tuple[float, int]:
    """Sort key of a case: its size, then the largest number of implementations."""
    ranked = [entry for entry in result.entries if entry.ranked]
    return math.prod(result.first.dims.values()), -len(ranked)


def _costs(result: CaseResult) -> dict[str, dict[str, float | None]]:
    ranked = sorted((entry for entry in result.entries if entry.ranked), key=lambda entry: entry.row.device_us or 0.0)
    return {
        entry.row.implementation: {name: rounded(column(entry.row)) for name, (column, *_) in COSTS.items()}
        for entry in ranked
    }


def draw_costs(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    heights = [0.7 + 0.19 * len(panel["rows"]) for panel in panels]
    figure, axes = canvas(8.6, sum(heights) + 0.5, rows=len(panels), sharex=True, height_ratios=heights)
    for panel, ax in zip(panels, axes, strict=True):
        _draw_cost_panel(ax, panel)
    low, high = _axis_range(panels)
    ticks(axes[-1], round_numbers(low, high))
    axes[-1].set_xlim(low, high)
    handles, names = max((ax.get_legend_handles_labels() for ax in axes), key=lambda found: len(found[0]))
    figure.legend(handles, names, loc="outside upper left", ncols=4, frameon=False)
    axes[-1].set_xlabel("us")
    return figure


def _axis_ends(panel: dict[str, Any]) -> tuple[float, float]:
    known = [us for points in panel["lines"].values() for _, us in points]
    return min(known) / 2, max(known) * 2


def _axis_range(panels: Sequence[dict[str, Any]]) -> tuple[float, float]:
    known = [value for panel in panels for row in panel["rows"].values() for value in row.values() if value]
    return min(known) / 1.3, max(known) * 1.3


def _draw_cost_panel(ax: Axes, panel: dict[str, Any]) -> None:
    names = list(panel["rows"])
    for place, name in enumerate(names):
        color = look(name.partition("/")[0]).color
        values = panel["rows"][name]
        known = [value for value in values.values() if value]
        ax.plot([min(known), max(known)], [place, place], color=color, linewidth=0.8, alpha=0.5)
        for cost, (_, marker, _) in COSTS.items():
            if values[cost]:
                ax.plot(
                    values[cost],
                    place,
                    marker,
                    color=color,
                    markersize=6 if marker == "|" else 4,
                    markeredgewidth=1.6 if marker in "|x" else 0,
                )
    for cost, (_, marker, label) in COSTS.items():
        if any(values[cost] for values in panel["rows"].values()):
            ax.plot([], [], marker, color=MUTED, label=label, linestyle="none")
    title(ax, panel["title"], 7.0)
    ax.set_yticks(range(len(names)), names, fontsize=7.5)
    for tick, name in zip(ax.get_yticklabels(), names, strict=True):
        tick.set_color(look(name.partition("/")[0]).color)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelbottom=True, labelsize=7.5)
    ax.grid(axis="y", visible=False)
