"""Figure: a CPU beside a GPU. Few cores with large caches, and many multiprocessors with many threads each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite.report.style import MUTED
from validation.figures.parts import BLUE, GREEN, ORANGE, PURPLE, SMALL, arrow, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def chips() -> Figure:
    figure, ax = sheet(7.2, 3.6, (36, 18))
    label(ax, 7.5, 17.2, "CPU: the host", weight="bold")
    label(ax, 25, 17.2, "GPU: the device", weight="bold")
    _cpu(ax)
    _gpu(ax)
    arrow(ax, (14.4, 2), (16.1, 2), arrowstyle="<->")
    label(ax, 15.25, 3, "PCIe", fontsize=SMALL)
    label(ax, 7.5, 0.4, "a few threads, each as fast as possible", fontsize=SMALL, color=MUTED)
    label(ax, 25.5, 0.4, "tens of thousands of threads, as many results as possible", fontsize=SMALL, color=MUTED)
    return figure


def _cpu(ax: Axes) -> None:
    for i in range(4):
        x, y = 0.8 + i % 2 * 6.9, 11.9 - i // 2 * 4.2
        box(ax, x, y, 6.5, 3.8, fill="white")
        box(ax, x + 0.3, y + 0.4, 2.2, 3, "control", ORANGE, fontsize=SMALL)
        box(ax, x + 2.7, y + 2, 3.5, 1.4, "arithmetic", GREEN, fontsize=SMALL)
        box(ax, x + 2.7, y + 0.4, 3.5, 1.4, "caches", PURPLE, fontsize=SMALL)
    box(ax, 0.8, 4.2, 13.4, 3, "last-level cache", PURPLE)
    box(ax, 0.8, 1, 13.4, 2.2, "memory", BLUE)


def _gpu(ax: Axes) -> None:
    for i in range(24):
        x, y = 16.3 + i % 8 * 2.4, 13.4 - i // 8 * 2.9
        box(ax, x, y, 2.2, 2.5, fill="white")
        box(ax, x + 0.15, y + 2.05, 1.9, 0.3, fill=ORANGE)
        for j in range(8):
            box(ax, x + 0.15 + j % 4 * 0.475, y + 1.4 - j // 4 * 0.55, 0.475, 0.55, fill=GREEN)
        box(ax, x + 0.15, y + 0.15, 1.9, 0.6, fill=PURPLE)
    label(ax, 25.8, 7.2, "each: a multiprocessor (SM) with its registers and shared memory", fontsize=SMALL)
    box(ax, 16.3, 4.2, 19, 2.2, "L2 cache, of all multiprocessors", PURPLE)
    box(ax, 16.3, 1, 19, 2.2, "device memory, many times faster than the host's", BLUE)
