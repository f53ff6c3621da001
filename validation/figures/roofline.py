"""Figure: the roofline of a device, with the rungs of matmul and a few operations on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from suite.report.style import INK, MUTED, PAPER, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOFS = {"fp32": "float32", "bf16": "bfloat16, tensor cores"}


class Point(NamedTuple):
    """One row: its name, flops for each byte, and TFLOP/s."""

    name: str
    intensity: float
    tflops: float
    framework: str


def roofline(device: str, peaks: Mapping[str, Any], points: Sequence[Point]) -> Figure:
    """peaks: `gb_per_s`, and `tflops` by arithmetic, as the datasheet states them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), facecolor=PAPER)
    ax = figure.add_axes((0.09, 0.12, 0.89, 0.8))
    low, high = 0.05, 20000.0
    bandwidth = peaks["gb_per_s"] / 1e3
    for name, text in ROOFS.items():
        rate = peaks["tflops"][name]
        knee = rate / bandwidth
        ax.plot([low, knee, high], [low * bandwidth, rate, rate], color=MUTED, linewidth=1)
        ax.text(high * 0.9, rate * 1.07, f"{text}: {rate:g} TFLOP/s", ha="right", fontsize=7.5, color=MUTED)
    ax.text(0.4, 0.4 * bandwidth * 1.5, f"memory: {bandwidth:g} TB/s", rotation=33, fontsize=7.5, color=MUTED)
    for point in points:
        style = look(point.framework)
        ax.plot(point.intensity, point.tflops, marker=style.marker, color=style.color, markersize=5, linestyle="")
        close = [other for other in points if other.intensity == point.intensity and other.tflops > point.tflops]
        left = any(other.tflops < 1.5 * point.tflops for other in close)  # beside the mark of its neighbour
        ax.annotate(point.name, (point.intensity, point.tflops), xytext=(-6 if left else 6, -3),
                    textcoords="offset points", ha="right" if left else "left", fontsize=7.5, color=INK)  # fmt: skip
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(0.1, 2000))
    ax.set_xlabel("flops for each byte of the operation", fontsize=8.5)
    ax.set_ylabel("TFLOP/s", fontsize=8.5)
    ax.set_title(f"{device}: above the roofs is impossible", fontsize=9, color=INK)
    ax.tick_params(labelsize=7.5)
    ax.minorticks_off()
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return figure
