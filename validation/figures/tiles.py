"""Figure: the parts of a, b and out that a block, and a thread, of each rung of matmul uses at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.report.style import MUTED
from validation.figures.parts import BLUE, GREEN, ORANGE, SMALL, STRONG, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDE = 5.0
RUNGS = (
    ("cuda", "a thread: one output,\na row of a, a column of b", 0.12, 0.12, SIDE),
    ("cuda/tiled", "a block: 32 x 32 outputs\na thread: 4 of them", 1.1, 0.28, 1.1),
    ("cuda/register_tiles", "a block: 128 x 128 outputs\na thread: 8 x 8 of them", 2.6, 0.55, 0.5),
)
"""Name, text, then side of the block's tile, side of the thread's, depth along K of the tiles in shared memory."""


def tiles() -> Figure:
    figure, ax = sheet(7.2, 3.7, (39, 20))
    for i, (name, text, block, thread, depth) in enumerate(RUNGS):
        x = 0.9 + 13 * i
        label(ax, x + 5.6, 19.2, name, weight="bold")
        label(ax, x + 5.6, 17.5, text, fontsize=SMALL, color=MUTED)
        _rung(ax, x, block, thread, depth)
    label(ax, 19.5, 1.5, "blue: what the block copies at a time; orange: what one thread computes or reads",
          fontsize=SMALL)  # fmt: skip
    return figure


def _rung(ax: Axes, x: float, block: float, thread: float, depth: float) -> None:
    low, high, right = 3.2, 9.4, x + 6.2
    box(ax, right, high, SIDE, SIDE, fill="white")  # b
    box(ax, x, low, SIDE, SIDE, fill="white")  # a
    box(ax, right, low, SIDE, SIDE, fill="white")  # out
    label(ax, right + SIDE - 0.3, high + 0.5, "b", color=STRONG, ha="right")
    label(ax, x + SIDE - 0.3, low + 0.5, "a", color=STRONG, ha="right")
    label(ax, right + SIDE - 0.3, low + 0.5, "out", color=STRONG, ha="right")
    column, row = right + 1.4, low + SIDE - 1.1 - block
    start = 0.0 if depth == SIDE else 1.6
    box(ax, x + start, row, depth, block, fill=BLUE)
    box(ax, column, high + SIDE - start - depth, block, depth, fill=BLUE)
    box(ax, column, row, block, block, fill=GREEN)
    across = column + block * 0.3 if block > 0.2 else column
    down = row + block * 0.5 if block > 0.2 else row
    box(ax, across, down, thread, thread, fill=ORANGE)
    box(ax, x + start, down, depth, thread, fill=ORANGE)
    box(ax, across, high + SIDE - start - depth, thread, depth, fill=ORANGE)
