"""Writes names at the ends of lines, and sizes on an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

GAP = 0.05
"""The smallest distance of two labels, as a part of the height of the panel."""
LABEL_WIDTH = 0.14
"""Width of a size on an axis, as a part of the panel's."""
SHORT, MIN_LABELS, MAX_LABELS = 200, 3, 9
"""Ratio of the ends of a logarithmic axis below which it has more labels than the powers of ten; number of labels."""
BOLD = 0.0102
"""Inches of a bold character of size 1, on average."""


@dataclass(frozen=True)
class Label:
    """The name of a line that ends at x, y."""

    x: float
    y: float
    text: str
    color: str
    bold: bool = False


def title(ax: Axes, text: str, inches: float, largest: float = 10) -> None:
    """Write a title above a panel, smaller if it is longer than `inches`."""
    ax.set_title(text, fontsize=min(largest, inches / (BOLD * max(1, len(text)))))


def label_line_ends(ax: Axes, labels: Sequence[Label]) -> None:
    """Write each label beside the panel at the height of its line, moved apart where they would overlap."""
    wanted = sorted((_part(ax.get_ylim(), ax.get_yscale(), label.y), place) for place, label in enumerate(labels))
    heights = spread_apart([height for height, _ in wanted])
    for height, (own, place) in zip(heights, wanted, strict=True):
        label = labels[place]
        weight = "bold" if label.bold else "normal"
        ax.text(
            1.03, height, label.text, transform=ax.transAxes, color=label.color, fontsize=7.5, fontweight=weight,
            va="center",
        )  # fmt: skip
        ax.plot(
            [_part(ax.get_xlim(), ax.get_xscale(), label.x), 1.025], [own, height], transform=ax.transAxes,
            color=label.color, linewidth=0.4, alpha=0.6, clip_on=False, scalex=False, scaley=False,
        )  # fmt: skip


def _part(limits: tuple[float, float], scale: str, value: float) -> float:
    """The position of `value` on an axis: 0 at the first end, 1 at the last."""
    low, high = limits
    if scale == "log":
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


def spread_apart(heights: Sequence[float]) -> list[float]:
    """`heights`, which are in ascending order, moved apart to a distance of at least `GAP`.

    Labels that overlap are centred on the mean of their heights.
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1]) < _top(groups[-2]) + GAP:
            last = groups.pop()
            groups[-1] += last
    return [_bottom(group) + GAP * place for group in groups for place in range(len(group))]


def _bottom(group: Sequence[float]) -> float:
    """The height of a group's lowest label, if the group is centred on the mean of its heights, within the panel."""
    return max(sum(group) / len(group) - GAP * (len(group) - 1) / 2, 0.0)


def _top(group: Sequence[float]) -> float:
    return _bottom(group) + GAP * (len(group) - 1)


def sizes(ax: Axes, found: Sequence[int]) -> None:
    """Label the sizes on a logarithmic axis: `4096`, and powers of two from 2^17 as `2^17`. Labels do not overlap."""
    from matplotlib.ticker import NullLocator

    least = math.log(found[-1] / found[0]) * LABEL_WIDTH
    shown = [found[-1]]
    for size in found[-2::-1]:
        if math.log(shown[0] / size) >= least:
            shown.insert(0, size)
    ax.set_xticks(shown, [size_name(size) for size in shown])
    ax.xaxis.set_minor_locator(NullLocator())


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with round numbers as `0.001`, `1`, `1,000`."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    axis.set_major_locator(FixedLocator(round_numbers(*axis.get_view_interval())))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def round_numbers(low: float, high: float) -> list[float]:
    """Numbers for a logarithmic axis: powers of ten, with 2 and 5 times them if the axis is short; at least three."""
    from matplotlib.ticker import MaxNLocator

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high < SHORT * low else (1,)
    found = [each for power in powers for step in steps if low <= (each := step * 10.0**power) <= high]
    if len(found) < MIN_LABELS:
        found = [float(each) for each in MaxNLocator(MIN_LABELS + 1).tick_values(low, high) if low <= each <= high]
    return found[:: max(1, math.ceil(len(found) / MAX_LABELS))]


def size_name(size: int) -> str:
    exponent = size.bit_length() - 1
    return f"2^{exponent}" if size > 1 << 16 and size == 1 << exponent else str(size)
