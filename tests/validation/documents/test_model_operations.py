"""The tables of the operations of models have all cases."""

from __future__ import annotations

from validation.documents import model_operations

TRITON, CUDA = 4, 5
"""Columns of the table."""


def cells(row: str) -> list[str]:
    return row.strip("|").split("|")


def test_every_case_has_a_vendor_and_both_frameworks() -> None:
    rows = model_operations.table(model_operations.timed_cases(model_operations.H100)).splitlines()[2:]
    assert len(rows) > 20
    empty = {(row.split()[1], column) for row in rows for column, cell in enumerate(cells(row)) if not cell.strip()}
    assert empty == {("rms_norm_quantize", CUDA), ("linear_cross_entropy", TRITON)}, "their plain lines were left out"
