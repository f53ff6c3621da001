"""Plots what a million calls cost, at the price of an hour that the reader gives: a bar for each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.plots.figure import Plot, canvas, rounded
from suite.report.ranking import CaseResult
from suite.report.style import INK, look
from suite.results.render import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BARS = 40
"""The largest number of cases in the plot; the dearest are shown."""
WIDTH, BAR, EDGES = 8.6, 0.2, 0.8
"""Inches: the width of the figure, the height of a bar, and that of title and axis."""


def cost_of_calls(results: Sequence[CaseResult]) -> Iterator[Plot]:
    """The cost of a million calls of the fastest row of each case; nothing without a price."""
    found: list[tuple[str, str, float]] = []
    for result in results:
        costs = [(entry.cost, entry) for entry in result.entries if entry.ranked and entry.cost is not None]
        if costs:
            cost, entry = min(costs, key=lambda each: each[0])
            found.append((entry.case_name, entry.row.implementation, rounded(cost) or 0.0))
    if found:
        found = sorted(found, key=lambda bar: bar[2])[-MAX_BARS:]
        about = (
            "Each bar is a case: what a million calls of its fastest implementation cost, one after the other, at the "
            "given price of an hour. The price is the reader's."
        )
        yield Plot("cost", "Cost of a million calls", about, {"bars": found}, draw)


def draw(data: dict[str, Any]) -> Figure:
    bars = data["bars"]
    figure, (ax,) = canvas(WIDTH, EDGES + BAR * len(bars))
    for place, (_, implementation, cost) in enumerate(bars):
        ax.barh(place, cost, 0.7, color=look(implementation.partition("/")[0]).color)
        text = f"{number(cost, 3)}  {implementation}"
        ax.annotate(text, (cost, place), (3, 0), textcoords="offset points", va="center", fontsize=7, color=INK)
    ax.set_yticks(range(len(bars)), [name for name, *_ in bars], fontsize=7)
    ax.set_xlabel("cost of a million calls of the fastest implementation, in the currency of the price", fontsize=8)
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.25)
    return figure
