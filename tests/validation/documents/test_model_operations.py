"""The table of the operations on an H100 has all cases."""

from __future__ import annotations

from validation.documents import model_operations


def test_every_case_has_a_vendor_and_both_frameworks() -> None:
    rows = model_operations.table().splitlines()[2:]
    assert len(rows) > 20
    assert all(cell.strip() for row in rows for cell in row.strip("|").split("|"))
