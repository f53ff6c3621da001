"""Plots speeds of matmul relative to cuBLAS over arithmetic intensity and over waves of large tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROW, LEGEND = 9.0, 2.6, 0.7
"""Inches: the width of the figure, the height of a row of panels, and that of the legend above them."""
MARKERS = "o^sDvPX*"
TICKS = (0.25, 0.5, 1, 2, 4, 8, 16, 32)


class Point(NamedTuple):
    """A product: flops for each byte of 16-bit elements, waves of tiles of 128 x 256, and speed over cuBLAS."""

    intensity: float
    waves: float
    ratio: float


def figure_of(rows: Mapping[str, Mapping[str, Sequence[Point]]]) -> Figure:
    """Two panels for each row, by its name. A row has points of several kinds, each with a colour and a marker."""
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(kind for row in rows.values() for kind in row))
    legend = LEGEND if len(kinds) > 1 else 0.2
    height = ROW * len(rows) + legend
    figure = Figure(figsize=(WIDTH, height))
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.5 / height, top=1 - legend / height, hspace=0.3, wspace=0.05)
    axes = figure.subplots(len(rows), 2, sharey=True, squeeze=False)
    for (left, right), (name, row) in zip(axes, rows.items(), strict=True):
        for ax in (left, right):
            ax.axhline(1, color="gray", linewidth=0.8)
        for marker, kind in zip(MARKERS, kinds, strict=False):
            points = row.get(kind, ())
            _draw(left, [(point.intensity, point.ratio) for point in points], marker, kind)
            _draw(right, [(point.waves, point.ratio) for point in points], marker, kind)
        left.set_ylabel(f"{name}:\ntimes as fast as cuBLAS")
        left.set_xlabel("flops for each byte, in 16 bits an element")
        right.set_xlabel("waves of tiles of 128 x 256")
    if len(kinds) > 1:
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="upper center", ncols=4, frameon=False)
    return figure


def _draw(ax: Axes, points: Sequence[tuple[float, float]], marker: str, kind: str) -> None:
    from matplotlib.ticker import FuncFormatter

    x, y = [point[0] for point in points], [point[1] for point in points]
    ax.scatter(x, y, s=16, alpha=0.6, marker=marker, label=kind, linewidths=0)
    ax.set(xscale="log", yscale="log")
    ax.minorticks_off()
    low, high = ax.get_ylim()
    shown = [tick for tick in TICKS if low <= tick <= high]
    ax.set_yticks(shown, labels=[f"{tick:g}" for tick in shown])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def plot(rows: Mapping[str, Mapping[str, Sequence[Point]]], path: Path) -> None:
    """Write the figure as PNG."""
    figure_of(rows).savefig(path, dpi=110, metadata={"Software": None})
