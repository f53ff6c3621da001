"""Figure: the elements that the threads of a grid compute, in one dimension and in two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.report.style import MUTED
from validation.figures.parts import BLUE, GREEN, GREY, ORANGE, PURPLE, SMALL, STRONG, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLOCKS, THREADS, ELEMENTS = 4, 8, 27
FILLS = (BLUE, GREEN, ORANGE, PURPLE)
ROWS, COLUMNS, BLOCK_Y, BLOCK_X = 5, 10, 2, 4


def threads() -> Figure:
    figure, ax = sheet(7.2, 4.3, (38, 21.5))
    _one_dimension(ax, 16)
    _two_dimensions(ax)
    return figure


def _one_dimension(ax: Axes, y: float) -> None:
    label(ax, 21, y + 4.7, f"N = {ELEMENTS}, {BLOCKS} blocks of {THREADS} threads", weight="bold")
    for i in range(BLOCKS * THREADS):
        block, thread = divmod(i, THREADS)
        inside = i < ELEMENTS
        marked = i == 21
        box(ax, 5 + i, y, 1, 1.3, str(thread), FILLS[block] if inside else GREY, fontsize=SMALL,
            color=STRONG if marked else None, weight="bold" if marked else None)  # fmt: skip
        label(ax, 5.5 + i, y - 0.7, str(i) if inside else "-", fontsize=SMALL, color=MUTED)
    for block in range(BLOCKS):
        label(ax, 5 + block * THREADS + THREADS / 2, y + 2.3, f"blockIdx.x = {block}", fontsize=SMALL)
    label(ax, 4.8, y + 0.65, "threadIdx.x", fontsize=SMALL, ha="right")
    label(ax, 4.8, y - 0.7, "i", fontsize=SMALL, ha="right")
    label(ax, 21, y - 2, "i = blockIdx.x * blockDim.x + threadIdx.x;  thread 5 of block 2 has element 2 * 8 + 5 = 21",
          fontsize=SMALL, color=STRONG)  # fmt: skip
    label(ax, 34.5, y + 3.4, "i >= N: no element", fontsize=SMALL, color=MUTED)


def _two_dimensions(ax: Axes) -> None:
    left, top, wide, high = 11.0, 9.6, 1.7, 1.1
    label(ax, 21, 11.2, f"M = {ROWS} rows, N = {COLUMNS} columns, blocks of {BLOCK_X} x {BLOCK_Y}", weight="bold")
    for m in range(6):
        for n in range(12):
            inside = m < ROWS and n < COLUMNS
            fill = FILLS[(m // BLOCK_Y + n // BLOCK_X) % len(FILLS)] if inside else GREY
            text = f"{n % BLOCK_X}, {m % BLOCK_Y}"
            box(ax, left + n * wide, top - (m + 1) * high, wide, high, text if inside else "", fill, fontsize=6.5)
    for column in range(3):
        label(ax, left + (column + 0.5) * BLOCK_X * wide, 10, f"blockIdx.x = {column}", fontsize=SMALL)
    for row in range(3):
        label(ax, left - 0.3, top - (row + 0.5) * BLOCK_Y * high, f"blockIdx.y = {row}", fontsize=SMALL, ha="right")
    label(ax, 21, 1.9, "in each place: threadIdx.x, threadIdx.y", fontsize=SMALL, color=MUTED)
    label(ax, 21, 0.8, "m = blockIdx.y * blockDim.y + threadIdx.y,  n = blockIdx.x * blockDim.x + threadIdx.x",
          fontsize=SMALL, color=STRONG)  # fmt: skip
