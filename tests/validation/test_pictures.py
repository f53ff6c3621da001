"""The picture of the terminal has the numbers of the committed results."""

from __future__ import annotations

import html
import re

from suite.core.paths import ROOT
from validation import pictures


def test_the_picture_has_what_the_results_say() -> None:
    picture = (ROOT / "docs" / "img" / pictures.TERMINAL).read_text(encoding="utf-8")
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", picture)
    shown = "".join("".join(map(html.unescape, texts)).split())
    for line in (pictures.COMMAND, *(each.plain for each in pictures.lines())):
        assert "".join(line.split()) in shown, "python validation/pictures.py"


def test_the_picture_loads_nothing_from_a_network() -> None:
    picture = pictures.terminal()
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", picture)
