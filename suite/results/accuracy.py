"""Computes `error_vs_vendor`: the error of each row relative to the most accurate vendor library."""

from __future__ import annotations

from collections.abc import Sequence

from suite.results.row import Row, Status

INACCURATE = 8.0
"""A row whose error is so many times that of the most accurate vendor implementation says so: three bits less."""
REMARK = "the root mean square error is "


def set_error_vs_vendor(rows: Sequence[Row]) -> None:
    """Set `error_vs_vendor` of the rows of one case on one device, in place, and the remark of rows far from 1.

    It is None if no vendor's implementation is right, or if the best one has no error.
    """
    vendors = [row for row in rows if row.status is Status.OK and row.vendor and row.rms]
    best = min(vendors, key=lambda row: row.rms or 0.0, default=None)
    for row in rows:
        remarks = [text for text in row.remarks.split("; ") if text and not text.startswith(REMARK)]
        row.error_vs_vendor = None
        if best is not None and best.rms and row.status is Status.OK and row.rms is not None:
            row.error_vs_vendor = row.rms / best.rms
            if row.error_vs_vendor >= INACCURATE:
                remarks.append(f"{REMARK}{row.error_vs_vendor:.3g} times that of {best.implementation}")
        row.remarks = "; ".join(remarks)
