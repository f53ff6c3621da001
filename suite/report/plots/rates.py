"""Plots the rate over the size, with the limits. Noisy rates are hollow and have their intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.load import Entry
from suite.report.plots.figure import Margins, Plot, grid, rounded, text_inches
from suite.report.plots.labels import Label, label_line_ends, sizes, title
from suite.report.plots.limits import limits_of
from suite.report.plots.series import Series, series_of
from suite.report.plots.units import counts_flops, rate_function, unit_of
from suite.report.style import INK, PAPER, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS, MAX_SIZES = 6, 12
PANEL, LEFT = (2.9, 2.3), 0.75
"""Inches: width and height of a panel, and the room to its left."""
HEADROOM = 1.06


def rate_against_size(entries: Sequence[Entry]) -> Iterator[Plot]:
    """A figure for each operation, a panel for each dtype, precision and options with at least two sizes."""
    found: dict[str, list[Series]] = {}
    for series in series_of([entry for entry in entries if entry.timed]):
        found.setdefault(series.operation, []).append(series)
    for operation, group in found.items():
        most = sorted(group, key=lambda series: -len(series.by_size))[:MAX_PANELS]
        panels = [_panel(series) for series in group if series in most]
        yield Plot(
            f"rate-{operation}", f"{operation}: rate against size", _about(operation, panels), {"panels": panels}, draw
        )


def _about(operation: str, panels: Sequence[dict[str, Any]]) -> str:
    text = f"Rate of every {operation} implementation against size, for {', '.join(each['title'] for each in panels)}."
    if any(panel["limits"] for panel in panels):
        text += " Thick lines are limits."
    if any(len(point) > 2 for panel in panels for points in panel["lines"].values() for point in points):
        text += " Hollow marks are noisy; a thin line is the 95% interval."
    if any(len(_segments(points, panel["sizes"])) > 1 for panel in panels for points in panel["lines"].values()):
        text += " A line has a gap where an implementation has no time."
    return text


def _panel(series: Series) -> dict[str, Any]:
    shown = _evenly_spaced(sorted(series.by_size))
    by_size = {size: series.by_size[size] for size in shown}
    entries = [entry for rows in by_size.values() for entry in rows]
    in_flops = counts_flops(entries)
    rate = rate_function(in_flops)
    limits = limits_of(by_size, rate)
    bounds = [value for points in limits.values() for _, value in points]
    scale, unit = unit_of([*map(rate, entries), *bounds], in_flops)
    lines = {
        name: [_point(series.size_of(entry), rate(entry) / scale, entry) for entry in rows if entry in entries]
        for name, rows in series.lines().items()
    }
    return {
        "title": series.title,
        "axis": series.axis,
        "unit": unit,
        "sizes": shown,
        "limits": {name: [[size, rounded(value / scale)] for size, value in found] for name, found in limits.items()},
        "lines": {name: points for name, points in lines.items() if points},
    }


def _point(size: int, rate: float, entry: Entry) -> list[float | None]:
    """Size and rate; for a noisy row also the least and the highest rate of its 95% interval."""
    row = entry.row
    if not row.noisy:
        return [size, rounded(rate)]
    ends = [
        rate * row.device_us / end if row.device_us and end else rate for end in (row.device_us_high, row.device_us_low)
    ]
    return [size, rounded(rate), *map(rounded, ends)]


def _evenly_spaced(found: Sequence[int]) -> list[int]:
    """About `MAX_SIZES` of the sizes at most, evenly spaced, including the last."""
    step = math.ceil(len(found) / MAX_SIZES)
    return list(found[::-1][::step][::-1])


def _segments(points: Sequence[list[float]], shown: Sequence[int]) -> list[list[list[float]]]:
    """The points of a line, in parts of sizes that follow each other."""
    places = {size: place for place, size in enumerate(shown)}
    parts = [[points[0]]]
    for before, point in itertools.pairwise(points):
        if places[int(point[0])] == places[int(before[0])] + 1:
            parts[-1].append(point)
        else:
            parts.append([point])
    return parts


def draw(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    names = [name for panel in panels for name in (*panel["lines"], *panel["limits"])]
    right = 0.25 + text_inches(names, 7.5)
    figure, axes = grid(len(panels), PANEL, Margins(LEFT, right, 0.35, 0.55))
    for panel, ax in zip(panels, axes, strict=True):
        _draw_panel(ax, panel)
        title(ax, panel["title"], PANEL[0] + right)
    return figure


def _draw_panel(ax: Axes, panel: dict[str, Any]) -> None:
    labels, highest = [], 0.0
    for name, points in panel["lines"].items():
        _draw_line(ax, name, points, panel["sizes"])
        labels.append(Label(points[-1][0], points[-1][1], name, look(name.partition("/")[0]).color))
        highest = max(highest, *(point[1] for point in points))
    for name, points in panel["limits"].items():
        x, y = zip(*points, strict=True)
        ax.plot(x, y, color=INK, linewidth=2.2, marker="_" if len(points) == 1 else "", markersize=14)
        labels.append(Label(x[-1], y[-1], name, INK, bold=True))
        highest = max(highest, *y)
    ax.set_xscale("log", base=2)
    ax.set_xlabel(panel["axis"])
    ax.set_ylabel(panel["unit"])
    ax.set_ylim(0, HEADROOM * highest)
    sizes(ax, panel["sizes"])
    label_line_ends(ax, labels)


def _draw_line(ax: Axes, name: str, points: Sequence[list[float]], shown: Sequence[int]) -> None:
    style = look(name.partition("/")[0])
    for part in _segments(points, shown):
        ax.plot([point[0] for point in part], [point[1] for point in part], color=style.color, linewidth=1.2)
    steady, noisy = ([point for point in points if (len(point) > 2) is kind] for kind in (False, True))
    for size, _, low, high in noisy:
        ax.plot([size, size], [low, high], color=style.color, linewidth=0.8)
    for found, inside, edge in ((steady, style.color, 0.0), (noisy, PAPER, 1.0)):
        ax.plot(
            [point[0] for point in found], [point[1] for point in found], style.marker, color=style.color,
            markersize=4, markerfacecolor=inside, markeredgewidth=edge,
        )  # fmt: skip
