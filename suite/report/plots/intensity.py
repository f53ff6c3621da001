"""Plots speed relative to the best vendor library over arithmetic intensity, to show the effect of many shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.plots.figure import Margins, Plot, grid, rounded
from suite.report.plots.labels import plain_numbers
from suite.report.plots.lanes import BEYOND, RANGE
from suite.report.ranking import CaseResult
from suite.report.style import INK, look, sort_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_INTENSITIES, MAX_PANELS = 8, 6
"""Number of different intensities that a panel needs; largest number of panels."""
MAX_VECTORS = 500
"""The largest number of marks that are drawn one by one. More are drawn as one image."""
TICKS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def against_intensity(results: Sequence[CaseResult]) -> Iterator[Plot]:
    """A panel for each operation and arithmetic with many intensities, with a mark for each case and framework."""
    groups: dict[str, dict[str, list[list[float | None]]]] = {}
    for result in results:
        entry = result.vendor
        if entry is None or not entry.bytes or not entry.flops:
            continue
        points = groups.setdefault(f"{result.first.row.operation} {result.first.arithmetic}", {})
        for framework in dict.fromkeys(each.framework for each in result.entries):
            best = result.best_of(framework)
            if best is not None and best.ratio and best.row.is_ours:
                points.setdefault(framework, []).append([rounded(entry.flops / entry.bytes), rounded(best.ratio)])
    panels = [
        {"title": title, "points": {name: points[name] for name in sorted(points, key=sort_key)}}
        for title, points in groups.items()
        if len({x for found in points.values() for x, _ in found}) >= MIN_INTENSITIES
    ]
    if panels:
        about = (
            "Each mark is a case: how many times as fast as the best vendor library a framework's best implementation "
            f"is, over the case's flops for each byte. {BEYOND}"
        )
        yield Plot(
            "intensity", "Speed against the best vendor library over intensity", about,
            {"panels": panels[:MAX_PANELS]}, draw,
        )  # fmt: skip


def draw(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    figure, axes = grid(len(panels), (6.2 if len(panels) == 1 else 3.4, 2.4), Margins(0.65, 0.3, 0.6, 0.5))
    marks = sum(len(points) for panel in panels for points in panel["points"].values())
    for panel, ax in zip(panels, axes, strict=True):
        _draw_panel(ax, panel, rasterized=marks > MAX_VECTORS)
    handles = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles, frameon=False, fontsize=8, labelcolor="linecolor", handletextpad=0.2,
        loc="upper left", ncols=len(handles),
    )  # fmt: skip
    return figure


def _draw_panel(ax: Axes, panel: dict[str, Any], *, rasterized: bool) -> None:
    from matplotlib.ticker import NullLocator

    ax.set(xscale="log", yscale="log", ylim=(1 / RANGE / 1.05, RANGE * 1.05))
    ax.axhline(1.0, color=INK, linewidth=1)
    for framework, points in panel["points"].items():
        style, (x, y) = look(framework), zip(*points, strict=True)
        shown = [max(1 / RANGE, min(RANGE, value)) for value in y]
        ax.plot(
            x, shown, style.marker, color=style.color, alpha=0.7, markeredgewidth=0, markersize=4.5, label=style.name,
            rasterized=rasterized,
        )  # fmt: skip
    ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.yaxis.set_minor_locator(NullLocator())
    plain_numbers(ax.xaxis)
    ax.set_title(panel["title"])
    ax.set_xlabel("flops for each byte", fontsize=7.5)
    ax.set_ylabel("times as fast as the vendor", fontsize=7.5)
