"""Plots dots on lanes: a panel for each operation, a lane for each framework, a dot for each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.load import Entry
from suite.report.plots.figure import MAX_VECTORS, Plot, canvas, rounded
from suite.report.ranking import CaseResult
from suite.report.style import INK, look, sort_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, LANE, HEAD = 8.6, 0.2, 0.62
"""Inches: the width of the figure, the height of a lane, and that of a panel's title and axis."""
LIMIT = 1.0
RANGE = 4.0
"""The largest ratio on the axis. Larger ones, and those below its inverse, are drawn at the end."""


BEYOND = f"Ratios above {RANGE:g} or below {1 / RANGE:g} are drawn there."


def against_vendors(results: Sequence[CaseResult]) -> Iterator[Plot]:
    """The speed of each framework's best implementation relative to the best vendor library: `vs_best`."""
    found: dict[str, dict[str, list[float]]] = {}
    for result in results:
        if result.vendor is not None:
            for framework, best in _best_of_each(result):
                if best.ratio:
                    _add(found, result, framework, best.ratio)
    yield from _plot(
        "against-vendors",
        "Speed against the best vendor library",
        "Each dot is a case: how many times as fast as the best vendor library the framework's best implementation is. "
        f"{BEYOND}",
        found,
        x_label="times as fast as the best vendor library",
        line="the best vendor library",
        log=True,
    )


def energy(results: Sequence[CaseResult]) -> Iterator[Plot]:
    """The energy of each framework's best implementation relative to that of the fastest vendor library."""
    found: dict[str, dict[str, list[float]]] = {}
    for result in results:
        reference = result.vendor.row.joules if result.vendor is not None else None
        for framework, best in _best_of_each(result) if reference else ():
            if best.row.joules and reference:
                _add(found, result, framework, best.row.joules / reference)
    yield from _plot(
        "energy",
        "Energy of a call against the fastest vendor library",
        "Each dot is a case: the energy of one call of the framework's best implementation over that of the fastest "
        "vendor library. Left of 1 is less energy. "
        f"{BEYOND}",
        found,
        x_label="energy of a call over that of the fastest vendor library",
        line="the fastest vendor library",
        log=True,
    )


def errors(entries: Sequence[Entry]) -> Iterator[Plot]:
    """The largest error of every judged row, divided by its bound."""
    found: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        if entry.row.error_ratio is not None:
            lanes = found.setdefault(entry.row.operation, {})
            lanes.setdefault(entry.framework, []).append(min(entry.row.error_ratio, 1.5))
    yield from _plot(
        "error-over-bound",
        "Largest error over its bound",
        "Each dot is a row: its largest error against float64 over the error bound. Right of 1 is wrong; "
        "values above 1.5 are drawn at 1.5.",
        found,
        x_label="largest error / bound",
        line="the bound",
        log=False,
    )


def _best_of_each(result: CaseResult) -> Iterator[tuple[str, Entry]]:
    for framework in dict.fromkeys(entry.framework for entry in result.entries):
        best = result.best_of(framework)
        if best is not None:
            yield framework, best


def _add(found: dict[str, dict[str, list[float]]], result: CaseResult, framework: str, value: float) -> None:
    found.setdefault(result.first.row.operation, {}).setdefault(framework, []).append(value)


def _plot(
    name: str,
    title: str,
    about: str,
    found: dict[str, dict[str, list[float]]],
    *,
    x_label: str,
    line: str,
    log: bool,
) -> Iterator[Plot]:
    panels = [
        {
            "title": operation,
            "lanes": {
                framework: sorted({rounded(value) for value in lanes[framework]}, key=float)  # type: ignore[arg-type]
                for framework in sorted(lanes, key=sort_key)
            },
        }
        for operation, lanes in found.items()
    ]
    if panels:
        yield Plot(name, title, about, {"panels": panels, "x_label": x_label, "line": line, "log": log}, draw)


def draw(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    heights = [HEAD + LANE * len(panel["lanes"]) for panel in panels]
    figure, axes = canvas(WIDTH, sum(heights) + 0.5, rows=len(panels), sharex=True, height_ratios=heights)
    marks = sum(len(values) for panel in panels for values in panel["lanes"].values())
    for number, (panel, ax) in enumerate(zip(panels, axes, strict=True)):
        _draw_panel(ax, panel, data, rasterized=marks > MAX_VECTORS)
        if number == 0:
            ax.annotate(data["line"], (1, 1), (3, 3), ("data", "axes fraction"), "offset points", color=INK, fontsize=8)
    axes[-1].set_xlabel(data["x_label"])
    return figure


def _draw_panel(ax: Axes, panel: dict[str, Any], data: dict[str, Any], *, rasterized: bool) -> None:
    names = list(panel["lanes"])
    ax.set_title(panel["title"])
    ax.axvline(LIMIT, color=INK, linewidth=1)
    for height, name in enumerate(names):
        style, values = look(name), panel["lanes"][name]
        shown = [max(1 / RANGE, min(RANGE, value)) for value in values] if data["log"] else values
        ax.plot(
            shown,
            [height] * len(values),
            style.marker,
            color=style.color,
            alpha=0.75,
            markeredgewidth=0,
            clip_on=False,
            rasterized=rasterized,
        )
    ax.set_yticks(range(len(names)), [look(name).name for name in names])
    for tick, name in zip(ax.get_yticklabels(), names, strict=True):
        tick.set_color(look(name).color)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelbottom=True, labelsize=7.5)
    ax.grid(axis="y", visible=False)
    if data["log"]:
        ax.set_xlim(1 / RANGE / 1.05, RANGE * 1.05)
        ticks(ax, (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0))
    else:
        ax.set_xlim(left=0)


def ticks(ax: Axes, values: Sequence[float]) -> None:
    """Make the axis logarithmic, with labels at these numbers."""
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log")
    ax.set_xticks(list(values), [f"{value:,g}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())
