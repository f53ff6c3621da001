"""Writes rows as a CSV file (RFC 4180, lines end in a line feed), and reads them again."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError
from suite.core.files import read_text
from suite.core.text import one_line
from suite.results import dimensions, legacy
from suite.results.row import COLUMNS, TYPES, Row

DIMENSION_COLUMNS = COLUMNS.index("case") + 1
"""Position of the first column of dimensions and options. These columns are not read again."""
TRUE = "yes"
"""True in a CSV. False is an empty cell."""
FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""The beginning of a text that a spreadsheet would compute as a formula. Such a text is written with one more
apostrophe in front, so that the spreadsheet shows it as text. Reading the table removes the apostrophe."""


def to_csv(rows: Iterable[Row]) -> str:
    """The table as text. Floats are written with all their digits, so that reading gives the same number."""
    rows = list(rows)
    more = dimensions.columns(rows)
    added = list(more[0]) if more else []
    records: list[Iterable[Any]] = [(*COLUMNS[:DIMENSION_COLUMNS], *added, *COLUMNS[DIMENSION_COLUMNS:])]
    for row, values in zip(rows, more, strict=True):
        cells = [cell(getattr(row, name)) for name in COLUMNS]
        records.append([*cells[:DIMENSION_COLUMNS], *map(cell, values.values()), *cells[DIMENSION_COLUMNS:]])
    return "".join(map(_record, records))


def cell(value: Any) -> Any:
    """A value as a cell of a CSV. A text that a spreadsheet would compute is marked as text."""
    if isinstance(value, bool):
        return TRUE if value else ""
    if isinstance(value, str) and FORMULA.match(value):
        return f"'{value}"
    return "" if value is None else value


def _record(values: Iterable[Any]) -> str:
    """One record, which ends in LF. The writer's terminator is CR LF, so that it quotes cells with either character."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().removesuffix("\r\n") + "\n"


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV that this version of the suite or an older one wrote.

    Raises `ResultsError` with the number of the row if the file is damaged or is not a results table.
    """
    try:
        records = list(csv.reader(io.StringIO(read_text(path), newline=""), strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise ResultsError(f"{path}: not a readable results table: {one_line(error)}") from error
    if not records:
        raise ResultsError(f"{path}: not a readable results table: No columns to parse from file")
    header, *body = records
    header = [legacy.RENAMED.get(name, name) for name in header]
    is_old = not any(name in header for name in legacy.MISSING)
    expected = [name for name in COLUMNS if not (is_old and name in legacy.MISSING)]
    missing = [
        name
        for name in expected
        if header.count(name) != 1 and not (name in legacy.ADDED_COLUMNS and name not in header)
    ]
    if missing:
        raise ResultsError(f"{path}: not a results table of this version: no column {', '.join(missing)}")
    places = {name: header.index(name) for name in expected if name in header}
    rows = []
    for number, record in enumerate(body, 1):
        try:
            row = _row(record, places, header)
        except ValueError as error:
            raise ResultsError(
                f"{path}: not a results table, or a damaged one: row {number}: {one_line(error)}"
            ) from None
        row = legacy.completed(row) if is_old else row
        rows.append(row if "noisy" in header else legacy.with_noise(row))
    return rows


def _row(record: list[str], places: dict[str, int], header: list[str]) -> Row:
    """One record as a row. Raises `ValueError` with the reason if the record is not valid."""
    if len(record) < len(header):
        raise ValueError(f"{header[-1]} is missing")
    if len(record) > len(header):
        raise ValueError(f"{len(record)} fields instead of {len(header)}")
    return Row(**{name: _value(name, record[place]) for name, place in places.items()})


def _value(name: str, text: str) -> Any:
    kind = TYPES[name]
    if kind is str:
        return text.removeprefix("'") if FORMULA.match(text) else text
    if kind is bool:
        return _boolean(name, text)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{name} is {text!r}") from None
    return _number(name, text)


def _boolean(name: str, text: str) -> bool:
    if text not in (TRUE, ""):
        raise ValueError(f"{name} is {text!r}, neither {TRUE!r} nor empty")
    return text == TRUE


def _number(name: str, text: str) -> float | int | None:
    optional = TYPES[name] in (float | None, int | None)
    if text == "" and optional:
        return None
    try:
        number = float(text.replace("_", "x"))  # refuses 1_000, which float() accepts
        if TYPES[name] in (int, int | None):
            return int(text) if text.lstrip("-").isdecimal() else _whole(number)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is {text!r}, which nothing measures" if text else f"{name} is missing") from None
    return None if math.isnan(number) and optional else number


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError
    return int(number)
