"""The page of all rungs has all implementations."""

from __future__ import annotations

from suite.results.csv_file import read_rows
from validation.documents import rungs


def test_every_column_has_the_vendor() -> None:
    assert all("| `torch`" in part for part in rungs.page().split("\n## ")[1:])


def test_every_line_has_a_time() -> None:
    page = rungs.page()
    for part in page.split("\n## ")[1:]:
        rows = read_rows(rungs.RESULTS / f"{part.split()[0]}.csv")
        timed = {row.implementation for row in rows if row.device_us and row.dtype == "bfloat16"}
        timed = {name for name in timed if not name.endswith("/auto")}
        assert not [name for name in timed if f"| `{name}` " not in part]
