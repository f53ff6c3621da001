"""Rows that say little: they are shown, summed up, and counted by `--strict` alone."""

from __future__ import annotations

import pytest

from suite.results.render import case_lines, exit_status, weak_remark
from suite.results.row import Row, Status

WEAKNESS = "weak bound: 30% of the elements may be off by 25% of the root mean square"


def row(**values: object) -> Row:
    found = Row("mine", "N=4", "float32", "ieee", "with/kernel")
    found.fill({"weakness": WEAKNESS, "weak_bound": 0.3, "error_ratio": 0.1} | values)
    return found


def test_a_weak_bound_is_in_the_note_and_in_a_remark() -> None:
    lines = "\n".join(str(line) for line in case_lines([row(), row(weakness="")], 200))
    assert WEAKNESS in lines
    assert weak_remark([row(), row(weakness="")]) == f"1 of 2 rows prove little even if they are ok: {WEAKNESS}"
    assert weak_remark([row(weakness="")]) == ""


@pytest.mark.parametrize(
    ("status", "strict", "expected"),
    [(Status.OK, False, 0), (Status.OK, True, 1), (Status.UNSUPPORTED, True, 0), (Status.WRONG, False, 1)],
)
def test_only_strict_counts_a_weak_row(status: Status, strict: bool, expected: int) -> None:
    assert exit_status([row(status=status), row(weakness="")], strict=strict) == expected
