"""Plots a heat map of `vs_best`: cases down, implementations across."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.plots.figure import Margins, Plot, grid, rounded, text_inches
from suite.report.ranking import CaseResult
from suite.report.style import MUTED, look, sort_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_CASES, MIN_IMPLEMENTATIONS = 30, 2
RANGE = 2.0
"""The ratio with the strongest colour. Ratios above it, or below its inverse, have the same colour."""
CELL = 0.46, 0.21
"""Width and height of a cell in inches."""
CELL_INK, CELL_PAPER, STRONG = "#101418", "#fdfdfd", 0.75
"""The colours of numbers on light and on strong cells, and the part of the range at which strong cells begin."""
COLORS = ("#b35806", "#f1a340", "#fee0b6", "#f7f7f7", "#d1e5f0", "#67a9cf", "#2166ac")
"""Colours from slow (orange) to fast (blue): ColorBrewer's scale, which people with any colour vision can read."""


def heat_maps(results: Sequence[CaseResult]) -> Iterator[Plot]:
    """A figure for each operation that was ranked against a vendor library."""
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        if result.vendor is not None:
            groups.setdefault(result.first.row.operation, []).append(result)
    for operation, group in groups.items():
        shown = group[:MAX_CASES]
        rows = [{entry.row.implementation: entry.ratio for entry in result.entries if entry.ranked} for result in shown]
        names = sorted(
            {name for row in rows for name, value in row.items() if value},
            key=lambda name: (sort_key(name.partition("/")[0]), name),
        )
        noisy = [_noisy(result, names) for result in shown]
        data = {
            "cases": [f"{result.first.row.case} {result.first.arithmetic}" for result in shown],
            "implementations": names,
            "values": [[rounded(row.get(name)) for name in names] for row in rows],
            "noisy": noisy,
        }
        left_out = f" The first {MAX_CASES} of {len(group)} cases." if len(group) > MAX_CASES else ""
        noise = " A ~ is a noisy time." if any(noisy) else ""
        about = (
            f"Speed of every {operation} implementation against the best vendor library, for each case. "
            f"Above 1, in blue, is faster; below 1, in orange, is slower.{noise}{left_out}"
        )
        if len(names) >= MIN_IMPLEMENTATIONS:
            yield Plot(f"heat-{operation}", f"{operation}: speed against the best vendor library", about, data, draw)


def _noisy(result: CaseResult, names: Sequence[str]) -> list[int]:
    """The places of `names` whose times are noisy."""
    noisy = {entry.row.implementation for entry in result.entries if entry.timed and entry.row.noisy}
    return [place for place, name in enumerate(names) if name in noisy]


def draw(data: dict[str, Any]) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap

    names, cases = data["implementations"], data["cases"]
    around = Margins(0.1 + text_inches(cases, 7), 0.75, 0.15 + 0.75 * text_inches(names, 7.5), 0.1)
    figure, (ax,) = grid(1, (CELL[0] * len(names), CELL[1] * len(cases)), around)
    shades = [[math.nan if not v else _shade(v) for v in row] for row in data["values"]]
    colors = LinearSegmentedColormap.from_list("ratio", COLORS)
    ax.imshow(shades, cmap=colors, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    for y, row in enumerate(data["values"]):
        for x, value in enumerate(row):
            if value:
                ink = CELL_PAPER if abs(_shade(value)) > STRONG else CELL_INK
                ax.text(x, y, _number(value), ha="center", va="center", fontsize=6.5, color=ink)
    for y, places in enumerate(data["noisy"]):
        for x in places:
            ax.text(x, y, "~", ha="center", va="center", fontsize=7, color=MUTED)
    ax.xaxis.tick_top()
    ax.set_xticks(range(len(names)), names, rotation=45, ha="left", rotation_mode="anchor", fontsize=7.5)
    for tick, name in zip(ax.get_xticklabels(), names, strict=True):
        tick.set_color(look(name.partition("/")[0]).color)
    ax.set_yticks(range(len(cases)), cases, fontsize=7)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return figure


def _number(value: float) -> str:
    """A ratio in at most five characters: `1.01`, `0.054`, `12`."""
    if value >= 9.995:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.3f}"


def _shade(ratio: float) -> float:
    return max(-1.0, min(1.0, math.log(ratio) / math.log(RANGE)))
