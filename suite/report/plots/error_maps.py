"""Plots error maps: the share of wrong elements in each tile of a wrong result."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suite.report.load import Entry
from suite.report.plots.figure import Margins, Plot, grid
from suite.report.style import MUTED
from suite.results.render.error_map import map_of
from suite.results.row import Row, Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREFIX = "wrong-"
"""Begins the names of error maps in a report."""
MAX_MAPS = 6
"""The largest number of maps in a report. The run's folder has all of them."""
SIDE, MIN_SIDE, WIDTH, MIN_HEIGHT = 2.8, 0.35, 8.0, 1.2
"""Inches: the longer side of a map, its shorter side at least, and the figure's width and least height with text."""
TITLE = 48
"""Number of characters in a line beside the map."""
WRONG = 201 / 255, 78 / 255, 0.0
"""The colour of wrong tiles, as red, green and blue. Unlike the page's own colours it is the same on a dark page."""
MIN_OPACITY = 0.25
"""Smallest opacity of that colour, so that wrong tiles are visible on a light and on a dark page."""


def error_maps(entries: Sequence[Entry]) -> Iterator[Plot]:
    """A figure for each of the first wrong rows whose errors are not everywhere."""
    found = [plot for entry in entries if (plot := error_map(entry.row)) is not None and not plot.data["is_uniform"]]
    yield from found[:MAX_MAPS]


def error_map(row: Row) -> Plot | None:
    """The figure of a row; None if the row is not wrong or its result is a single number."""
    found = map_of(row) if row.status is Status.WRONG else None
    if found is None:
        return None
    data = {
        "tile": list(found.tile),
        "shares": found.shares(),
        "is_uniform": found.is_uniform,
        "diagnosis": row.diagnosis,
    }
    tile = f"{found.tile[0]} x {found.tile[1]}" if len(found.rows) > 1 else f"{found.tile[1]}"
    about = (
        f"{row.explanation}. The stronger a tile of {tile} elements is coloured, the more of its elements are wrong; "
        "without colour none is."
    )
    arithmetic = row.dtype if row.precision == "ieee" else f"{row.dtype} {row.precision}"
    return Plot(
        f"{PREFIX}{file_stem(row)}",
        f"Where {row.implementation} is wrong: {row.operation} {row.case} {arithmetic}",
        about,
        data,
        draw,
    )


def file_stem(row: Row) -> str:
    """The name of a row's file, without suffix: operation, case, arithmetic and implementation."""
    text = f"{row.operation}-{row.case}-{row.dtype}-{row.precision}-{row.implementation}"
    return re.sub(r"[^\w=.-]+", "-", text).strip("-")


def draw(data: dict[str, Any]) -> Figure:
    shares, (down, across) = data["shares"], data["tile"]
    rows, columns = len(shares), len(shares[0])
    longest = max(rows, columns)
    panel = max(MIN_SIDE, SIDE * columns / longest), max(MIN_SIDE, SIDE * rows / longest)
    around = Margins(0.75, WIDTH - 0.75 - panel[0], 0.2, max(0.5, MIN_HEIGHT - panel[1]))
    figure, (ax,) = grid(1, panel, around)
    colors = [[(*WRONG, max(share, MIN_OPACITY) if share else 0.0) for share in row] for row in shares]
    extent = (0, columns * across, rows * down, 0)
    ax.imshow(colors, extent=extent, aspect="auto", interpolation="nearest")
    ax.grid(visible=False)
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color(MUTED)
    ax.locator_params(axis="both", nbins=4, integer=True)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    if rows == 1:
        ax.set_yticks([])
    ax.set_xlabel(f"column, in tiles of {across}" if rows > 1 else f"element, in tiles of {across}")
    ax.set_ylabel(f"row, in tiles of {down}" if rows > 1 else "")
    for share, text in ((1.0, "every element is wrong"), (0.5, "half of them"), (MIN_OPACITY, "a few")):
        ax.scatter([], [], marker="s", s=60, color=[(*WRONG, share)], label=text)
    title = textwrap.fill(data["diagnosis"], TITLE)
    ax.legend(
        loc="upper left", bbox_to_anchor=(1.12, 1.0), frameon=False, fontsize=8, labelcolor=MUTED, title=title,
        alignment="left", title_fontproperties={"size": 9, "weight": "bold"},
    )  # fmt: skip
    return figure
