"""Renders one case as lines of text: a table of at most eight columns, with notes and unsupported rows under it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.core.text import one_line
from suite.results.noise import noise
from suite.results.render.columns import (
    NOISY,
    SHOWN,
    CaseTable,
    clock_mark,
    number,
    profile_text,
)
from suite.results.render.error_map import map_lines
from suite.results.render.labels import case_title
from suite.results.render.layout import Field, clipped, table, wrapped
from suite.results.render.notes import Notes
from suite.results.render.view import COUNTS, DEFAULT, NOTE, RATE, Comparison, View
from suite.results.row import Mode, Row, Status

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    Status.OK: "green",
    Status.WRONG: "bold red",
    Status.ERROR: "red",
    Status.TIMEOUT: "red",
    Status.UNAVAILABLE: "yellow",
    Status.UNSUPPORTED: "dim",
}
NEVER_RAN = (Status.UNSUPPORTED, Status.UNAVAILABLE)
"""Statuses of rows that never ran. All rows of such a status share one line under the table."""
HEADS = {column.field: column.head for column in SHOWN} | {"error_ratio": "error / bound"}
DIGITS = {column.field: column.digits for column in SHOWN}
BALANCED_FLOPS_PER_BYTE = 10.0
"""Flops per byte from which a row without a known limit shows its rate of arithmetic instead of memory."""
MAX_CELL_LENGTH = 32
MIN_TENTH = 0.00095
"""The narrowest interval that is shown in percent with one decimal. Narrower ones have two."""


def case_lines(rows: Sequence[Row], width: int, view: View | None = None) -> list[Text]:
    """The rows of one case as lines at most `width` wide. The fastest row that agrees has an asterisk.

    Under the table stand the numbered notes, the meanings of marks, and the kernels that vendors' libraries ran.
    """
    from rich.text import Text

    view = view or View()
    whole = CaseTable.from_rows(rows)
    comparison = Comparison(rows, view.baseline)
    notes = Notes()
    shown = view.ordered([row for row in rows if row.status not in NEVER_RAN])
    lines = [Text(each, style="bold") for each in _title(rows, comparison, width)]
    if shown:
        devices = len({row.device for row in rows}) > 1
        names = [_name(row, devices) + (" *" if row is whole.fastest else "") for row in shown]
        fields = _fields(shown, view, comparison, notes)
        styles = ["bold" if row is whole.fastest else "" for row in shown]
        lines += table([Field("implementation", names, False), *fields], width, styles)
    under = [text for status in NEVER_RAN for text in _never_ran(rows, status, notes, width)]
    under += notes.lines(width)
    under += map_lines(shown, every=view.wide)
    under += [line for text in whole.remarks for line in wrapped(text, width, indent="  ")]
    chosen = zip(rows, whole.kernels, strict=True)
    under += [
        line
        for row, text in chosen
        if row.vendor and text
        for line in wrapped(f"{one_line(row.implementation)} ran {text}", width, indent="  ")
    ]
    return [*lines, *map(Text, under)]


def _notes(row: Row, comparison: Comparison) -> list[str]:
    untimed = row.execution is not Mode.NATIVE and row.status is Status.OK
    found = [f"{row.execution}, without a GPU: not timed"] if untimed else []
    if row.noisy:
        is_ranked = comparison.standings[row.device].is_ranked(row)
        found.append("noisy: ranked, since its interval decides" if is_ranked else "noisy: not ranked")
    texts = row.explanation, row.weakness if row.is_weak else "", row.remarks, profile_text(row)
    return found + [one_line(text) for text in texts if text]


def _title(rows: Sequence[Row], comparison: Comparison, width: int) -> list[str]:
    first = rows[0]
    title = case_title(first)
    reference = comparison.reference(first)
    if reference is not None and not comparison.baseline:
        title += f"; best vendor {reference.implementation}: {reference.vendor}"
    return wrapped(one_line(title), width, indent="  ")


def _name(row: Row, devices: bool) -> str:
    """The implementation's name, and its device if `devices`."""
    return one_line(f"{row.implementation} ({row.device})" if devices else row.implementation)


def _never_ran(rows: Sequence[Row], status: Status, notes: Notes, width: int) -> list[str]:
    """The rows of a status that never ran: `unsupported: numpy [1], cuda/skinny [2]`. Empty if there are none."""
    found = [
        f"{one_line(row.implementation)}\u00a0[{notes.number(one_line(row.reason))}]"
        if row.reason
        else row.implementation
        for row in rows
        if row.status is status
    ]
    lines = wrapped(f"{status}: {', '.join(found)}", width, indent="  ") if found else []
    # No-break spaces kept each name and its number on one line.
    return [line.replace("\u00a0", " ") for line in lines]


def _fields(rows: Sequence[Row], view: View, comparison: Comparison, notes: Notes) -> list[Field]:
    """The columns in which at least one row has a value."""
    names = view.columns or (COUNTS if view.counts else DEFAULT)
    if view.wide:
        others = [column.field for column in SHOWN if column.field not in (*DEFAULT, "interval", NOISY)]
        names = (*(name for name in DEFAULT if name not in (RATE, NOTE)), "execution", *others, NOTE)
    fields = [_field(name, rows, comparison, notes) for name in names if name != "implementation"]
    return [each for each in fields if any(each.cells) or view.columns]


def _field(name: str, rows: Sequence[Row], comparison: Comparison, notes: Notes) -> Field:
    if name == "status":
        return Field(name, [str(row.status) for row in rows], False, [STYLES[row.status] for row in rows])
    if name == "device_us":
        return Field(HEADS[name], _times(rows))
    if name == "vs_best":
        return Field(comparison.head, [number(comparison.ratio(row), 3) for row in rows])
    if name in ("of_limit", "vs_peer"):
        return Field(HEADS[name], ["" if row.noisy else number(getattr(row, name), 3) for row in rows])
    if name == RATE:
        return _rates(rows)
    if name == NOTE:
        return Field(NOTE, [notes.numbers(_notes(row, comparison)) for row in rows], False)
    return Field(HEADS.get(name, name), [_cell(row, name) for row in rows], _is_number(rows, name))


def _is_number(rows: Sequence[Row], name: str) -> bool:
    return not any(isinstance(getattr(row, name), str) for row in rows)


def _cell(row: Row, name: str) -> str:
    value = getattr(row, name)
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, str):
        return clipped(one_line(value), MAX_CELL_LENGTH)
    return f"{value:,}" if isinstance(value, int) else number(value, DIGITS.get(name, 4))


def _times(rows: Sequence[Row]) -> list[str]:
    """The time, its mark, and half the width of its interval: `2,691.5 ^ +-0.5%`."""
    widths = [noise(row) if row.device_us is not None else math.inf for row in rows]
    intervals = [
        f"+-{100 * width:.{1 if width >= MIN_TENTH else 2}f}%" if math.isfinite(width) else "" for width in widths
    ]
    marks = [clock_mark(row) for row in rows]
    marks = [f" {mark or ' '}" for mark in marks] if any(marks) else marks
    longest = max(map(len, intervals), default=0)
    return [
        f"{number(row.device_us, 4)}{mark} {interval.rjust(longest)}".rstrip() if row.device_us is not None else ""
        for row, mark, interval in zip(rows, marks, intervals, strict=True)
    ]


def _rates(rows: Sequence[Row]) -> Field:
    """The rate of the resource that limits the row: bytes or flops per second, in the unit of the fastest row."""
    timed = [row for row in rows if row.gb_per_s]
    if not timed:
        return Field(RATE, [""] * len(rows))
    shows_bandwidth = _shows_bandwidth(timed)
    values = [(row.gb_per_s if shows_bandwidth else None if row.tflops is None else row.tflops * 1e3) for row in rows]
    is_large = max(value for value in values if value is not None) >= 1e3
    unit = {(True, True): "TB/s", (True, False): "GB/s", (False, True): "TFLOP/s", (False, False): "GFLOP/s"}
    scale = 1e3 if is_large else 1.0
    cells = [number(None if value is None else value / scale, 3) for value in values]
    return Field(unit[shows_bandwidth, is_large], cells)


def _shows_bandwidth(timed: Sequence[Row]) -> bool:
    limited = next((row for row in timed if row.limit), None)
    if limited is not None:
        return limited.limit.startswith("memory")
    return 1e3 * (timed[0].tflops or 0.0) / (timed[0].gb_per_s or 1.0) < BALANCED_FLOPS_PER_BYTE
