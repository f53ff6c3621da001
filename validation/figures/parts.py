"""Parts that the figures share: a sheet without axes, boxes with text, arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suite.report.style import INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREEN, ORANGE, PURPLE, GREY = "#cfe3f3", "#cdebdd", "#fbdcc6", "#eadaf0", "#eceff2"
"""Light fills, on which INK is readable."""
STRONG = "#0072b2"
SMALL, TEXT = 7.5, 9.0
"""Sizes of text, in points."""


def sheet(width: float, height: float, units: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure of `width` x `height` inches, with coordinates from (0, 0) at the lower left to `units`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=PAPER)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, units[0]), ylim=(0, units[1]))
    ax.axis("off")
    return figure, ax


def box(
    ax: Axes, x: float, y: float, width: float, height: float, text: str = "", fill: str = GREY, **style: Any
) -> None:
    """A rectangle with its lower left corner at (x, y), and a text in its middle. style: of the text."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), width, height, facecolor=fill, edgecolor=MUTED, linewidth=0.7))
    if text:
        label(ax, x + width / 2, y + height / 2, text, **style)


def label(ax: Axes, x: float, y: float, text: str, **style: Any) -> None:
    ax.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": TEXT, "color": INK, **style})


def arrow(ax: Axes, begin: tuple[float, float], end: tuple[float, float], **style: Any) -> None:
    ax.annotate("", xy=end, xytext=begin, arrowprops={"arrowstyle": "->", "color": MUTED, **style})
