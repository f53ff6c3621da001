"""Makes the pictures of the documents from the committed results.

    python validation/pictures.py              # docs/img/terminal.svg: the output of `compare` for one case
    python validation/pictures.py --browser    # also report.png and report_phone.png, by headless Chromium

tests/validation/test_pictures.py checks that the terminal's picture has the numbers of the results.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from report.browser import BINARY, browser  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from suite.report.write import report  # noqa: E402
from suite.results.csv_file import read_rows  # noqa: E402
from suite.results.render import View, case_lines, chart_lines, overview_lines  # noqa: E402
from suite.results.row import Row  # noqa: E402

RESULTS, IMAGES = ROOT / "results" / "nvidia-h200", ROOT / "docs" / "img"
CASE = ("M=4096,N=4096,K=4096", "bfloat16")
SHOWN = ("torch", "jax", "jax/pallas", "triton", "triton/gluon", "cuda", "cuda/wgmma")
COMMAND = (
    "$ python -m suite compare --op matmul --shape 4096 --dtype bf16 --sort device_us \\",
    "    --impl torch --impl 'jax*' --impl triton --impl triton/gluon --impl cuda --impl cuda/wgmma",
)
TITLE, WIDTH = "NVIDIA H200", 96
TERMINAL = "terminal.svg"
PAGES = {"report.png": (1280, 860), "report_phone.png": (360, 780)}
"""Screenshots of the report, with the size of the window."""


def rows() -> list[Row]:
    """Return the rows of the case."""
    every = [row for row in read_rows(RESULTS / "matmul.csv") if (row.case, row.dtype) == CASE]
    return [row for row in every if row.implementation in SHOWN]


def lines() -> list[Text]:
    """Return the command and its output on a terminal."""
    case = rows()
    table, chart = case_lines(case, WIDTH, View(sort="device_us")), chart_lines(case, WIDTH)
    return [*map(Text, COMMAND), *table, Text(), *chart, Text(), *overview_lines(case, WIDTH)]


def terminal() -> str:
    """Return the terminal's picture as SVG, without the fonts that rich would load from a network."""
    console = Console(record=True, file=io.StringIO(), width=WIDTH, no_color=False, force_terminal=True)
    console.print(Text("\n").join(lines()), soft_wrap=True)
    picture = console.export_svg(title=TITLE, unique_id="terminal")
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)


def screenshots() -> None:
    """Take pictures of the report's page, wide and narrow."""
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        (page,) = report([RESULTS], ["html"], Path(folder), open_it=False)
        for name, (width, height) in PAGES.items():
            tab.open(page, width, height)
            tab.js("document.documentElement.style.scrollbarWidth = 'none'")
            tab.screenshot(IMAGES / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browser", action="store_true", help="also the screenshots of the report")
    given = parser.parse_args()
    (IMAGES / TERMINAL).write_text(terminal(), encoding="utf-8")
    if given.browser:
        if BINARY is None:
            sys.exit("--browser needs Chromium or Chrome: apt-get install --no-install-recommends chromium")
        screenshots()


if __name__ == "__main__":
    main()
