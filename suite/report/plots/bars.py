"""Plots all implementations of one case from slow to fast: the steps of a ladder of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.plots.figure import Margins, Plot, grid, rounded, text_inches
from suite.report.plots.labels import title
from suite.report.plots.units import counts_flops, rate_function, unit_of
from suite.report.ranking import CaseResult
from suite.report.style import INK, look
from suite.results.render import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_STEPS, MAX_PANELS = 3, 6


def steps(results: Sequence[CaseResult]) -> Iterator[Plot]:
    """A plot of the largest case of each dtype, for operations with at least three implementations in a framework."""
    found: dict[str, dict[str, CaseResult]] = {}
    for result in results:
        if _longest_ladder(result) >= MIN_STEPS:
            cases = found.setdefault(result.first.row.operation, {})
            known = cases.get(result.first.arithmetic)
            if known is None or _rank(result) > _rank(known):
                cases[result.first.arithmetic] = result
    for operation, cases in found.items():
        panels = [_panel(result) for result in list(cases.values())[:MAX_PANELS]]
        about = (
            f"Every {operation} implementation from slow to fast, in {'; '.join(panel['title'] for panel in panels)}."
        )
        noisy = dict.fromkeys(name for panel in panels for name in panel["noisy"])
        about += f" Without noisy times: {', '.join(noisy)}." if noisy else ""
        yield Plot(f"steps-{operation}", f"{operation}: from slow to fast", about, {"panels": panels}, draw)


def _longest_ladder(result: CaseResult) -> int:
    own = [entry.framework for entry in result.entries if entry.ranked and entry.row.is_ours]
    return max((own.count(name) for name in own), default=0)


def _rank(result: CaseResult) -> tuple[int, float]:
    return _longest_ladder(result), max(entry.flops for entry in result.entries)


def _panel(result: CaseResult) -> dict[str, Any]:
    ranked = sorted((entry for entry in result.entries if entry.ranked), key=lambda each: -(each.row.device_us or 0.0))
    in_flops = counts_flops(ranked)
    rate = rate_function(in_flops)
    scale, unit = unit_of(map(rate, ranked), in_flops)
    bars = [
        [entry.row.implementation, rounded(rate(entry) / scale), rounded(entry.ratio), bool(entry.row.vendor)]
        for entry in ranked
    ]
    noisy = [entry.row.implementation for entry in result.entries if entry.timed and entry.row.noisy]
    return {"title": f"{result.first.row.case} {result.first.arithmetic}", "unit": unit, "bars": bars, "noisy": noisy}


def draw(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    names = [name for panel in panels for name, *_ in panel["bars"]]
    most = max(len(panel["bars"]) for panel in panels)
    figure, axes = grid(len(panels), (2.9, 0.2 + 0.18 * most), Margins(0.25 + text_inches(names, 7.5), 0.2, 0.35, 0.5))
    for panel, ax in zip(panels, axes, strict=True):
        _draw_panel(ax, panel)
    return figure


def _draw_panel(ax: Axes, panel: dict[str, Any]) -> None:
    names = [name for name, *_ in panel["bars"]]
    for place, (name, rate, against, vendor) in enumerate(panel["bars"]):
        color = look(name.partition("/")[0]).color
        ax.barh(place, rate or 0.0, 0.7, color="none" if vendor else color, edgecolor=color, linewidth=1)
        text = number(rate, 3) + (f"  ({number(against, 3)})" if against else "")
        ax.annotate(text, (rate or 0.0, place), (3, 0), textcoords="offset points", va="center", fontsize=7, color=INK)
    ax.set_yticks(range(len(names)), names, fontsize=7.5)
    for tick, name in zip(ax.get_yticklabels(), names, strict=True):
        tick.set_color(look(name.partition("/")[0]).color)
    title(ax, panel["title"], 3.2, 8.5)
    ax.set_xlabel(f"{panel['unit']} (times the best vendor library); vendors are hollow", fontsize=7)
    ax.tick_params(axis="x", labelsize=7.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.2)
