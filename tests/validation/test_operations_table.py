"""The page of the operations on an H100 has the numbers of the committed rows."""

from __future__ import annotations

from validation import operations_table


def test_the_page_has_the_numbers_of_the_rows() -> None:
    found = operations_table.TABLE.search(operations_table.PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found[0] == operations_table.table()


def test_every_case_has_a_vendor_and_both_frameworks() -> None:
    rows = operations_table.table().splitlines()[2:]
    assert len(rows) > 20
    assert all(cell.strip() for row in rows for cell in row.strip("|").split("|"))
