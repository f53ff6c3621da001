"""Plots the roofline: every timed row under the datasheet's roofs (Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.load import Entry, Run
from suite.report.plots.figure import MAX_VECTORS, Margins, Plot, grid, rounded, text_inches
from suite.report.plots.labels import Label, label_line_ends, plain_numbers
from suite.report.style import INK, MUTED, look, sort_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL, LEFT = (2.9, 2.7), 1.35
"""Inches: width and height of a panel, and the room to its left."""
ARITHMETIC = {"float64": "fp64", "float32": "fp32", "float32 tf32": "tf32", "float16": "fp16", "bfloat16": "bf16"}


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
    points: dict[str, dict[tuple[float, float], None]] = {}
    for entry in shown:
        mark = _three_digits(entry.flops / entry.bytes), _three_digits(entry.row.tflops or 0.0)
        points.setdefault(entry.framework, {})[mark] = None  # marks that coincide are drawn once
    data = {
        "tb_per_s": peaks["gb_per_s"] / 1e3,
        "roofs": [[rate, name] for rate, name in sorted(roofs.items())],
        "points": {name: list(map(list, points[name])) for name in sorted(points, key=sort_key)},
        "operations": _intensity_ranges(shown),
    }
    roofs_text = ", ".join(f"{name} {rate:g}" for rate, name in data["roofs"])
    about = (
        f"Every timed row by framework: flops for each byte against TFLOP/s, below the memory roof of "
        f"{data['tb_per_s']:g} TB/s and the arithmetic roofs {roofs_text} TFLOP/s."
    )
    yield Plot("roofline", "Roofline", about, data, draw)


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def _intensity_ranges(entries: Sequence[Entry]) -> dict[str, list[float | None]]:
    """The smallest and the largest flops per byte of each operation."""
    found: dict[str, list[float]] = {}
    for entry in entries:
        found.setdefault(entry.row.operation, []).append(entry.flops / entry.bytes)
    return {name: [rounded(min(values)), rounded(max(values))] for name, values in found.items()}


def draw(data: dict[str, Any]) -> Figure:
    """A panel for each framework, so that no marks hide those of another, and one for the operations."""
    every = [point for points in data["points"].values() for point in points]
    operations = data["operations"]
    figure, (*axes, last) = grid(
        len(data["points"]) + 1, PANEL, Margins(LEFT, 0.3 + text_inches(_names(data), 7.5), 0.35, 0.5)
    )
    low, high = min(x for x, _ in every) / 2, max(x for x, _ in every) * 2
    for ax, (framework, points) in zip(axes, data["points"].items(), strict=True):
        ax.set(xscale="log", yscale="log", xlim=(low, high), xlabel="flops for each byte", ylabel="TFLOP/s")
        ax.set_ylim(min(y for _, y in every) / 2, max([rate for rate, _ in data["roofs"]], default=1.0) * 2)
        ax.set_title(look(framework).name, color=look(framework).color)
        _draw_roofs(ax, data, low, high)
        _draw_points(ax, framework, points, rasterized=len(every) > MAX_VECTORS)
        plain_numbers(ax.yaxis)
        plain_numbers(ax.xaxis)
    last.set(xscale="log", xlim=(low, high))
    _draw_intensity_ranges(last, operations)
    plain_numbers(last.xaxis)
    return figure


def _names(data: dict[str, Any]) -> list[str]:
    return [_roof_name(rate, name) for rate, name in data["roofs"]] or [""]


def _roof_name(rate: float, name: str) -> str:
    return f"{name} {rate:g}"


def _draw_points(ax: Axes, framework: str, points: Sequence[Sequence[float]], *, rasterized: bool) -> None:
    style, (x, y) = look(framework), zip(*points, strict=True)
    ax.plot(
        x, y, style.marker, rasterized=rasterized, color=style.color, alpha=0.6, markeredgewidth=0, markersize=4,
    )  # fmt: skip


def _draw_roofs(ax: Axes, data: dict[str, Any], low: float, high: float) -> None:
    bandwidth = data["tb_per_s"]
    top = max([rate for rate, _ in data["roofs"]], default=bandwidth * high)
    ax.plot([low, top / bandwidth], [low * bandwidth, top], color=INK, linewidth=1.4)
    bottom, above = ax.get_ylim()
    angle = math.degrees(math.atan(PANEL[1] / math.log(above / bottom) * math.log(high / low) / PANEL[0]))
    middle = math.sqrt(low * top / bandwidth)
    ax.text(
        middle, middle * bandwidth * 1.5, f"memory {bandwidth:g} TB/s", ha="center", fontsize=7.5, rotation=angle,
        rotation_mode="anchor",
    )  # fmt: skip
    for rate, _ in data["roofs"]:
        ax.plot([rate / bandwidth, high], [rate, rate], color=INK, linewidth=1)
    label_line_ends(ax, [Label(high, rate, _roof_name(rate, name), INK) for rate, name in data["roofs"]])


def _draw_intensity_ranges(ax: Axes, operations: dict[str, Any]) -> None:
    """Draw the range of intensities of each operation."""
    ax.set_title("operations")
    for place, (least, most) in enumerate(operations.values()):
        ax.plot([least, most], [place, place], color=MUTED, linewidth=2, marker="o", markersize=2.5)
    ax.set_yticks(range(len(operations)), list(operations), fontsize=7)
    ax.set_ylim(len(operations) - 0.5, -0.5)
    ax.set_xlabel("flops for each byte")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
