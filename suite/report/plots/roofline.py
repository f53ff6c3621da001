"""Plots the roofline: every timed row under the datasheet's roofs (Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.load import Entry, Run
from suite.report.plots.figure import MAX_VECTORS, Plot, canvas, rounded
from suite.report.plots.labels import plain_numbers
from suite.report.style import INK, MUTED, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES = 7.2, 4.6
"""Approximate width and height of the panel."""
ARITHMETIC = {"float32": "fp32", "float32 tf32": "tf32", "float16": "fp16", "bfloat16": "bf16"}


def roofline(run: Run, entries: Sequence[Entry]) -> Iterator[Plot]:
    """One figure, if the device's peaks are known."""
    peaks = run.peaks
    shown = [entry for entry in entries if entry.ranked and entry.row.device != "cpu" and entry.bytes and entry.flops]
    if not peaks or not shown:
        return
    used = {ARITHMETIC.get(entry.arithmetic, "fp8" if entry.row.dtype.startswith("float8") else "") for entry in shown}
    roofs: dict[float, str] = {}
    for name, rate in peaks["tflops"].items():
        if name in used:
            roofs[rate] = f"{roofs[rate]}, {name}" if rate in roofs else name
    points: dict[str, list[list[float | None]]] = {}
    for entry in shown:
        points.setdefault(entry.framework, []).append([rounded(entry.flops / entry.bytes), rounded(entry.row.tflops)])
    data = {
        "tb_per_s": peaks["gb_per_s"] / 1e3,
        "roofs": [[rate, name] for rate, name in sorted(roofs.items())],
        "points": points,
        "operations": _intensity_ranges(shown),
    }
    about = (
        f"Every timed row: flops for each byte against TFLOP/s, below the memory roof of {data['tb_per_s']:g} TB/s and "
        f"the arithmetic roofs {', '.join(f'{name} {rate:g}' for rate, name in data['roofs'])} TFLOP/s."
    )
    yield Plot("roofline", "Roofline", about, data, draw)


def _intensity_ranges(entries: Sequence[Entry]) -> dict[str, list[float | None]]:
    """The smallest and the largest flops per byte of each operation."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        found.setdefault(entry.row.operation, []).append(entry.flops / entry.bytes)
    return {name: [rounded(min(values)), rounded(max(values))] for name, values in found.items()}


def draw(data: dict[str, Any]) -> Figure:
    operations = data["operations"]
    heights = [INCHES[1], 0.25 + 0.17 * len(operations)]
    figure, (ax, below) = canvas(8.6, sum(heights) + 0.4, rows=2, sharex=True, height_ratios=heights)
    every = [point for points in data["points"].values() for point in points]
    low, high = min(x for x, _ in every) / 2, max(x for x, _ in every) * 2
    ax.set(xscale="log", yscale="log", ylabel="TFLOP/s", xlim=(low, high))
    ax.set_ylim(min(y for _, y in every) / 2, max([rate for rate, _ in data["roofs"]], default=1.0) * 2)
    _draw_roofs(ax, data, low, high)
    for framework, points in data["points"].items():
        style, (x, y) = look(framework), zip(*points, strict=True)
        looks: dict[str, Any] = {
            "color": style.color,
            "alpha": 0.7,
            "markeredgewidth": 0,
            "markersize": 4.5,
            "label": style.name,
        }
        ax.plot(x, y, style.marker, rasterized=len(every) > MAX_VECTORS, **looks)
    ax.legend(frameon=False, loc="lower right", labelcolor="linecolor", handletextpad=0.2)
    _draw_intensity_ranges(below, operations)
    plain_numbers(ax.yaxis)
    plain_numbers(below.xaxis)
    return figure


def _draw_roofs(ax: Axes, data: dict[str, Any], low: float, high: float) -> None:
    bandwidth = data["tb_per_s"]
    top = max([rate for rate, _ in data["roofs"]], default=bandwidth * high)
    ax.plot([low, top / bandwidth], [low * bandwidth, top], color=INK, linewidth=1.6)
    middle = math.sqrt(low * top / bandwidth)
    bottom, above = ax.get_ylim()
    angle = math.degrees(math.atan(INCHES[1] / math.log(above / bottom) * math.log(high / low) / INCHES[0]))
    along: dict[str, Any] = {"rotation": angle, "rotation_mode": "anchor"}
    ax.text(middle, middle * bandwidth * 1.25, f"memory {bandwidth:g} TB/s", ha="center", fontsize=8, **along)
    for rate, name in data["roofs"]:
        ax.plot([rate / bandwidth, high], [rate, rate], color=INK, linewidth=1.2)
        ax.annotate(f"{name} {rate:g}", (high, rate), (4, 0), textcoords="offset points", va="center", fontsize=8)


def _draw_intensity_ranges(ax: Axes, operations: dict[str, Any]) -> None:
    """Draw, below the roofs, the range of intensities of each operation."""
    for place, (least, most) in enumerate(operations.values()):
        ax.plot([least, most], [place, place], color=MUTED, linewidth=3, marker="o", markersize=3)
    ax.set_yticks(range(len(operations)), list(operations), fontsize=8)
    ax.set_ylim(len(operations) - 0.5, -0.5)
    ax.set_xlabel("flops for each byte")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
