"""The picture of the terminal has the numbers of the committed results."""

from __future__ import annotations

import html
import re

from suite.core.paths import ROOT
from suite.results.groups import standing
from validation import pictures


def test_the_picture_has_what_the_results_say() -> None:
    picture = (ROOT / "docs" / "img" / pictures.TERMINAL).read_text(encoding="utf-8")
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", picture)
    shown = "".join("".join(map(html.unescape, texts)).split())
    for line in pictures.lines():
        assert "".join(line.plain.split()) in shown, "python validation/pictures.py"


def test_the_picture_loads_nothing_from_a_network() -> None:
    picture = pictures.terminal()
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", picture)


def test_what_is_said_of_the_picture_is_true() -> None:
    text = (ROOT / "docs" / "reading_the_table.md").read_text(encoding="utf-8")
    rows = {row.implementation: row for row in pictures.rows()}
    winner = standing(list(rows.values())).winner
    assert winner is not None
    assert f"`{winner.implementation}` has the star" in text
    assert f"It is {winner.vs_best:.2f} times as fast as the vendor" in text
    assert f"takes {rows['cuda'].device_us / winner.device_us:.0f} times as long" in text
