"""The page of all rungs has the numbers of the committed results."""

from __future__ import annotations

from suite.results.csv_file import read_rows
from validation import rungs_table


def test_the_page_is_that_of_the_results() -> None:
    assert rungs_table.PAGE.read_text(encoding="utf-8") == rungs_table.page()


def test_every_column_has_the_vendor() -> None:
    assert all("| `torch`" in part for part in rungs_table.page().split("\n## ")[1:])


def test_every_line_has_a_time() -> None:
    page = rungs_table.page()
    for part in page.split("\n## ")[1:]:
        rows = read_rows(rungs_table.RESULTS / f"{part.split()[0]}.csv")
        timed = {row.implementation for row in rows if row.device_us and row.dtype == "bfloat16"}
        timed = {name for name in timed if not name.endswith("/auto")}
        assert not [name for name in timed if f"| `{name}` " not in part]
