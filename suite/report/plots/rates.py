"""Plots the rate over the size, with the limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.load import Entry
from suite.report.plots.figure import Margins, Plot, grid, rounded, text_inches
from suite.report.plots.labels import Label, label_line_ends, sizes
from suite.report.plots.series import Series, series_of
from suite.report.plots.units import counts_flops, rate_function
from suite.report.style import INK, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS, MAX_SIZES = 6, 12


def rate_against_size(entries: Sequence[Entry]) -> Iterator[Plot]:
    """A figure for each operation, a panel for each dtype, precision and options with at least two sizes."""
    found: dict[str, list[Series]] = {}
    for series in series_of([entry for entry in entries if entry.ranked]):
        found.setdefault(series.operation, []).append(series)
    for operation, group in found.items():
        most = sorted(group, key=lambda series: -len(series.by_size))[:MAX_PANELS]
        panels = [_panel(series) for series in group if series in most]
        about = (
            f"Rate of every {operation} implementation against size, "
            f"for {', '.join(panel['title'] for panel in panels)}. The thick line is the limit."
        )
        yield Plot(f"rate-{operation}", f"{operation}: rate against size", about, {"panels": panels}, draw)


def _panel(series: Series) -> dict[str, Any]:
    in_flops = counts_flops([entry for rows in series.by_size.values() for entry in rows])
    rate, unit = rate_function(in_flops)
    lines = {
        name: [[series.size_of(entry), rounded(rate(entry))] for entry in _evenly_spaced(rows)]
        for name, rows in series.lines().items()
    }
    limits = [[size, limit] for size, rows in sorted(series.by_size.items()) if (limit := _limit(rows, in_flops))]
    dtype, _, precision = series.arithmetic.partition(" ")
    limit_of = f"{('tf32' if precision == 'tf32' else dtype) if in_flops else 'memory'} limit"
    return {
        "title": series.title,
        "axis": series.axis,
        "unit": unit,
        "limit_of": limit_of,
        "limit": limits,
        "lines": lines,
    }


def _evenly_spaced(rows: Sequence[Entry]) -> Sequence[Entry]:
    """About `MAX_SIZES` of the rows at most, evenly spaced, including the last."""
    step = math.ceil(len(rows) / MAX_SIZES)
    return rows[::-1][::step][::-1]


def _limit(entries: Sequence[Entry], in_flops: bool) -> float | None:
    """The limit of most rows of a case. Rows that compute in another arithmetic may have a different one."""
    rate, _ = rate_function(in_flops)
    known = [rounded(rate(entry) / entry.row.of_limit) for entry in entries if entry.row.of_limit]
    return Counter(known).most_common(1)[0][0] if known else None


def draw(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    names = [name for panel in panels for name in (*panel["lines"], panel["limit_of"])]
    figure, axes = grid(len(panels), (2.9, 2.3), Margins(0.75, 0.25 + text_inches(names, 7.5), 0.35, 0.55))
    for panel, ax in zip(panels, axes, strict=True):
        _draw_panel(ax, panel)
    return figure


def _draw_panel(ax: Axes, panel: dict[str, Any]) -> None:
    labels = []
    for name, points in panel["lines"].items():
        style, (x, y) = look(name.partition("/")[0]), zip(*points, strict=True)
        ax.plot(x, y, marker=style.marker, color=style.color, markeredgewidth=0, markersize=4, linewidth=1.2)
        labels.append(Label(x[-1], y[-1], name, style.color))
    if panel["limit"]:
        x, y = zip(*panel["limit"], strict=True)
        ax.plot(x, y, color=INK, linewidth=2.2)
        labels.append(Label(x[-1], y[-1], panel["limit_of"], INK, bold=True))
    ax.set_xscale("log", base=2)
    ax.set_title(panel["title"])
    ax.set_xlabel(panel["axis"])
    ax.set_ylabel(panel["unit"])
    ax.set_ylim(bottom=0)
    sizes(ax, sorted({point[0] for points in panel["lines"].values() for point in points}))
    label_line_ends(ax, labels)
