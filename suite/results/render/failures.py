"""Renders the rows that failed, for a run that prints nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from suite.core.text import one_line
from suite.results.render.labels import case_title
from suite.results.render.layout import wrapped
from suite.results.render.summary import failures
from suite.results.row import Row, Status

SUSPECT = "faster than the device can be"


def failure_lines(rows: Iterable[Row], width: int, *, strict: bool = False) -> list[str]:
    """A text for each row that makes the exit status 1: `matmul M=N=K=64 fp32: cuda/tiled wrong: value: at ...`."""
    return [line for row in failures(rows, strict=strict) for line in wrapped(_text(row), width, indent="  ")]


def _text(row: Row) -> str:
    status = str(row.status) if row.status is not Status.OK else "suspect" if row.suspect else "weak"
    suspect = "; ".join(filter(None, (SUSPECT, row.remarks))) if row.suspect else ""
    reason = row.explanation if row.failed and not row.suspect else suspect or row.weakness
    text = f"{case_title(row)}: {row.implementation} {status}"
    return one_line(f"{text}: {reason}" if reason else text)
