"""Plots the speeds of matmul_lines.py relative to cuBLAS over arithmetic intensity and over waves of large tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from validation.matmul_lines import Timed

WIDTH, ROW, LEGEND = 9.0, 2.6, 0.7
"""Inches: the width of the figure, the height of a line's panels, and that of the legend above them."""
MARKERS = "o^sDvPX*"
TICKS = (0.25, 0.5, 1, 2, 4)


def figure_of(lines: Sequence[str], timed: Iterable[Timed]) -> Figure:
    """A row of two panels for each line; a colour and a marker for each dtype, precision and layout."""
    from matplotlib.figure import Figure

    kinds: dict[str, list[Timed]] = {}
    for each in timed:
        kinds.setdefault(kind_name(each.kind), []).append(each)
    height = ROW * len(lines) + LEGEND
    figure = Figure(figsize=(WIDTH, height))
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.5 / height, top=1 - LEGEND / height, hspace=0.3, wspace=0.05)
    axes = figure.subplots(len(lines), 2, sharey=True, squeeze=False)
    for (left, right), line in zip(axes, lines, strict=True):
        for marker, (name, group) in zip(MARKERS, kinds.items(), strict=False):
            shown = [each for each in group if line in each.us]
            _draw(left, [each.intensity for each in shown], [each.ratio(line) for each in shown], marker, name)
            _draw(right, [each.waves for each in shown], [each.ratio(line) for each in shown], marker, name)
        left.set_ylabel(f"{line}:\ntimes as fast as cuBLAS")
        left.set_xlabel("flops for each byte, in 16 bits an element")
        right.set_xlabel("waves of tiles of 128 x 256")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="upper center", ncols=4, frameon=False)
    return figure


def kind_name(kind: tuple[str, str, str]) -> str:
    """The name of a layout, dtype and precision: `bfloat16, nn`, `float32 tf32, nn`."""
    layout, dtype, precision = kind
    return f"{dtype if precision == 'ieee' else f'{dtype} {precision}'}, {layout}"


def _draw(ax: Axes, x: Sequence[float], y: Sequence[float], marker: str, name: str) -> None:
    from matplotlib.ticker import FuncFormatter

    ax.scatter(x, y, s=16, alpha=0.6, marker=marker, label=name, linewidths=0)
    ax.axhline(1, color="gray", linewidth=0.8)
    ax.set(xscale="log", yscale="log")
    ax.minorticks_off()
    ax.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def plot(lines: Sequence[str], timed: Iterable[Timed], path: Path) -> None:
    """Write the figure as PNG."""
    figure_of(lines, timed).savefig(path, dpi=110, metadata={"Software": None})
