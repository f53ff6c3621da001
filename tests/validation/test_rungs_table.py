"""The page of all rungs has the numbers of the committed results."""

from __future__ import annotations

from validation import rungs_table


def test_the_page_is_that_of_the_results() -> None:
    assert rungs_table.PAGE.read_text(encoding="utf-8") == rungs_table.page()


def test_every_column_has_the_vendor() -> None:
    assert all("| `torch`" in part for part in rungs_table.page().split("\n## ")[1:])
