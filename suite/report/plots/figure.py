"""Defines a plot, and converts it to a figure and to files."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.report.plots.svg import compact
from suite.report.style import GRID, INK, MUTED, PAPER, variable_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine has the same layout
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "text.parse_math": False,  # so that a name with a dollar sign is not read as a formula
    "svg.fonttype": "none",
    "svg.hashsalt": "kernel-suite",
}
FONT = re.compile(r"font(-family)?: ?([^;\"]*?)'DejaVu Sans'[^;\"]*")
MAX_VECTORS = 1500
"""The largest number of marks in an SVG that are drawn one by one. More are drawn as one image."""


@dataclass(frozen=True)
class Plot:
    """One figure of a report. `data` has all shown values as JSON; `draw` makes the figure from them alone."""

    name: str
    title: str
    about: str
    """A description of the plot for people who cannot see it."""
    data: dict[str, Any]
    draw: Callable[[dict[str, Any]], Figure]

    def file(self, kind: str) -> bytes:
        """The contents of a `png` or `svg` file of the plot. The file's description holds the data."""
        description = json.dumps(self.data, separators=(",", ":"), sort_keys=True)
        keep_out: dict[str, None] = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        file = _saved(self, kind, {"Title": self.title, "Description": description, **keep_out})
        return compact(file.decode(), "i").encode() if kind == "svg" else file

    def inline_svg(self, prefix: str) -> str:
        """The plot for a page. Colours and font are the page's; ids begin with `prefix`, which no other plot uses.

        The page's variable `--points` is the width of the figure in points.
        """
        text = _saved(self, "svg", {"Date": None, "Creator": None}).decode()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = compact(text, prefix)
        text = re.sub(r"#[0-9a-f]{6}", lambda found: _as_variable(found[0]), text)
        text = re.sub(
            r'style="[^"]*"', lambda found: re.sub(r"([:;]) ;? ?", r"\1", found[0]), FONT.sub(_inherited, text)
        )
        text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
        text = re.sub(r'viewBox="0 0 ([\d.]+)', r'style="--points: \1" \g<0>', text, count=1)
        return text.replace(">\n<", "><").strip()


def data_of(file: bytes) -> dict[str, Any]:
    """The data that `Plot.file` wrote into an SVG."""
    import xml.etree.ElementTree as ElementTree

    root = ElementTree.fromstring(file)
    found = root.find(".//{http://purl.org/dc/elements/1.1/}description")
    data: dict[str, Any] = json.loads((found.text or "") if found is not None else "")
    return data


def is_plot(file: bytes) -> bool:
    """True if an SVG or PNG has data as `Plot.file` writes them."""
    if file.startswith(b"\x89PNG"):
        return re.search(rb"(?:tE|iT)XtDescription\0+\{", file) is not None
    try:
        return isinstance(data_of(file), dict)
    except (SyntaxError, ValueError):  # ParseError is a SyntaxError
        return False


def _saved(plot: Plot, kind: str, metadata: dict[str, Any]) -> bytes:
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context(SETTINGS):
        plot.draw(plot.data).savefig(buffer, format=kind, dpi=160, metadata=metadata)
    return buffer.getvalue()


def _as_variable(color: str) -> str:
    name = variable_of(color)
    return f"var(--{name})" if name else color


def _inherited(found: re.Match[str]) -> str:
    """The weight and size of a `font` property. The family is left to the page."""
    if found[1]:
        return ""  # left to the page
    return f"font: {found[2]}var(--sans)"


def canvas(width: float, height: float, rows: int = 1, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure of `width` by `height` inches, and its panels from top to bottom, with room for text beside them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, squeeze=False, **shared)
    return figure, list(panels.flat)


@dataclass(frozen=True)
class Margins:
    """Inches around a panel for the text there. Fixed margins avoid measuring the text, which takes long."""

    left: float
    right: float
    top: float
    bottom: float


def grid(count: int, panel: tuple[float, float], around: Margins) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels, two in a row. `panel` is the size of each in inches."""
    from matplotlib.figure import Figure

    columns = min(2, count)
    rows = math.ceil(count / columns)
    across, down = around.left + around.right, around.top + around.bottom
    width, height = columns * (panel[0] + across), rows * (panel[1] + down)
    figure = Figure(figsize=(width, height))
    panels = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        around.left / width, around.bottom / height, 1 - around.right / width, 1 - around.top / height,
        across / panel[0], down / panel[1],
    )  # fmt: skip
    for unused in panels.flat[count:]:
        unused.set_visible(False)
    return figure, list(panels.flat[:count])


def text_inches(texts: Iterable[str], font_size: float) -> float:
    """The approximate width in inches of the longest of `texts`."""
    return 0.0088 * font_size * max(len(text) for text in texts)


def rounded(value: float | None) -> float | None:
    """A value with four significant digits. A plot shows no more, and rounding keeps files stable."""
    return None if value is None else float(f"{value:.4g}")
