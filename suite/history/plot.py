"""Plots the history: a figure for each operation, a panel for each case, a line for each implementation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.core.integers import cdiv
from suite.history.load import CaseHistory, Line
from suite.report.plots.figure import Margins, Plot, grid, rounded, text_inches
from suite.report.plots.labels import Label, label_line_ends, title
from suite.report.style import INK, look
from suite.results.render.labels import short_case, short_dtype

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS, MAX_RUNS, MAX_TICKS = 8, 60, 5
PANEL, HEADROOM = (3.2, 2.2), 1.06
"""Width and height of a panel in inches; the end of its axis over the highest value."""
RATIO, TIME = "times as fast as the best vendor library", "device us"


def plots_of(cases: Sequence[CaseHistory]) -> Iterator[Plot]:
    """A figure for each operation, with the cases that the largest number of runs timed."""
    groups: dict[str, list[CaseHistory]] = {}
    for each in cases:
        groups.setdefault(each.operation, []).append(each)
    for operation, group in groups.items():
        most = sorted(group, key=lambda each: -len(each.runs))[:MAX_PANELS]
        panels = [_panel(each) for each in group if each in most]
        left_out = f" The {len(most)} of {len(group)} cases with the most runs." if len(group) > len(most) else ""
        about = f"Times of each {operation} implementation over the runs of this device.{left_out}"
        yield Plot(f"history-{operation}", f"{operation}: history", about, {"panels": panels}, draw)


def _panel(each: CaseHistory) -> dict[str, Any]:
    runs = each.runs[-MAX_RUNS:]
    has_ratios = any(line.ratios for line in each.lines)
    row = each.lines[0].points[0].row
    how = f" ({each.measured})" if each.measured else ""
    return {
        "title": f"{short_case(each.case)} {short_dtype(row)}{how}",
        "unit": RATIO if has_ratios else TIME,
        "runs": [run.date[5:16].replace("T", " ") or run.name for run in runs],
        "lines": {line.implementation: _values(line, runs, has_ratios) for line in each.lines},
    }


def _values(line: Line, runs: Sequence[Any], has_ratios: bool) -> list[float | None]:
    found = []
    for run in runs:
        point = line.at(run)
        time = None if point is None or point.row.noisy else point.row.device_us
        found.append(rounded(point.ratio if point is not None and has_ratios else time))
    return found


def draw(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    names = [name for panel in panels for name in panel["lines"]]
    right = 0.25 + text_inches(names, 7.5)
    figure, axes = grid(len(panels), PANEL, Margins(0.75, right, 0.4, 0.5))
    for panel, ax in zip(panels, axes, strict=True):
        _draw_panel(ax, panel)
        title(ax, panel["title"], PANEL[0] + right)
    return figure


def _draw_panel(ax: Axes, panel: dict[str, Any]) -> None:
    labels, highest = [], 1.0 if panel["unit"] == RATIO else 0.0
    for name, values in panel["lines"].items():
        known = [(place, value) for place, value in enumerate(values) if value is not None]
        if not known:
            continue
        style, y = look(name.partition("/")[0]), [math.nan if value is None else value for value in values]
        ax.plot(
            range(len(y)), y, marker=style.marker, color=style.color, markeredgewidth=0, markersize=4, linewidth=1.2
        )
        labels.append(Label(*known[-1], name, style.color))
        highest = max(highest, *(value for _, value in known))
    if panel["unit"] == RATIO:
        ax.axhline(1.0, color=INK, linewidth=0.8, zorder=0)
    ax.set_ylim(0, HEADROOM * highest or 1.0)
    count = len(panel["runs"])
    step = cdiv(count, MAX_TICKS)
    ax.set_xticks(range(0, count, step), panel["runs"][::step], fontsize=7)
    ax.set_xlim(-0.3, count - 0.7)
    ax.set_ylabel(panel["unit"], fontsize=7.5)
    label_line_ends(ax, labels)
