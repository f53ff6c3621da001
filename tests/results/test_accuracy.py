"""The error of rows relative to the most accurate vendor library."""

from __future__ import annotations

import pytest
from report.rows import row

from suite.results.accuracy import INACCURATE, set_error_vs_vendor
from suite.results.row import Row, Status


def line(name: str, rms: float | None, *, vendor: str = "", status: Status = Status.OK) -> Row:
    found = row(name, 1.0)
    found.rms, found.vendor, found.status = rms, vendor, status
    return found


def test_rows_are_held_against_the_most_accurate_right_vendor_line() -> None:
    rows = [
        line("triton", 3e-7),
        line("torch", 2e-7, vendor="cuBLAS"),
        line("jax", 1e-7, vendor="XLA"),
        line("numpy", 1e-9, vendor="BLAS", status=Status.WRONG),
        line("cuda", None),
    ]
    set_error_vs_vendor(rows)
    assert [each.error_vs_vendor for each in rows] == [pytest.approx(3.0), pytest.approx(2.0), 1.0, None, None]
    assert not any(each.remarks for each in rows)


def test_a_row_far_less_accurate_says_so_once() -> None:
    ours = line("triton", INACCURATE * 1e-7)
    ours.remarks = "clocks were lowered"
    rows = [ours, line("jax", 1e-7, vendor="XLA")]
    for _ in range(2):
        set_error_vs_vendor(rows)
        assert ours.remarks == "clocks were lowered; the root mean square error is 8 times that of jax"


def test_without_a_vendor_there_is_no_ratio() -> None:
    rows = [line("triton", 1e-7), line("jax", 0.0, vendor="XLA")]
    set_error_vs_vendor(rows)
    assert [each.error_vs_vendor for each in rows] == [None, None]
