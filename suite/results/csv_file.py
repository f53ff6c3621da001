"""Writes rows as a CSV file (RFC 4180, lines end in a line feed), and reads them again.

Until a run ends, its table is a *journal*, to which it appends. A journal has one more column, `sample_us`, and a line
for each record. A row may occur more than once; the last record counts. An incomplete last line, which a killed process
may leave, is not read.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError
from suite.core.files import MAX_RESULT_BYTES, read_regular
from suite.core.text import one_line
from suite.results import dimensions, legacy
from suite.results.row import COLUMNS, TYPES, Key, Row

DIMENSION_COLUMNS = COLUMNS.index("case") + 1
"""Position of the first column of dimensions and options. These columns are not read again."""
TRUE = "yes"
"""True in a CSV. False is an empty cell."""
FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""The beginning of a text that a spreadsheet would compute as a formula. Such a text is written with one more
apostrophe in front, so that the spreadsheet shows it as text. Reading the table removes the apostrophe."""


SAMPLES = "sample_us"
"""The last column of a journal: the raw samples as a JSON list."""


def to_csv(rows: Iterable[Row]) -> str:
    """The table as text. Floats are written with all their digits, so that reading gives the same number."""
    rows = list(rows)
    names = dimensions.names(rows)
    return _header(names) + "".join(_record(_cells(row, names)) for row in rows)


def journal_header(names: Sequence[str]) -> str:
    """The first record of a journal. `names` are its columns of dimensions."""
    return _header(names, SAMPLES)


def journal_records(rows: Iterable[Row], names: Sequence[str]) -> str:
    """The records of rows for a journal."""
    return "".join(_record(_journal_cells(row, names)) for row in rows)


def _journal_cells(row: Row, names: Sequence[str]) -> list[Any]:
    cells = [each.replace("\n", " ") if isinstance(each, str) else each for each in _cells(row, names)]
    return [*cells, json.dumps(row.sample_us, separators=(",", ":"))]


def _header(names: Sequence[str], *last: str) -> str:
    return _record((*COLUMNS[:DIMENSION_COLUMNS], *names, *COLUMNS[DIMENSION_COLUMNS:], *last))


def _cells(row: Row, names: Sequence[str]) -> list[Any]:
    cells = [cell(getattr(row, name)) for name in COLUMNS]
    values = dimensions.values(row, names)
    return [*cells[:DIMENSION_COLUMNS], *map(cell, values), *cells[DIMENSION_COLUMNS:]]


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
        header, *body = _records(path)
    except (OSError, ValueError, csv.Error) as error:
        raise ResultsError(f"{path}: not a readable results table: {one_line(error)}") from error
    is_journal = header[-1:] == [SAMPLES]
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
            row.sample_us = _samples(record[-1]) if is_journal else ()
        except (ValueError, RecursionError) as error:
            raise ResultsError(
                f"{path}: not a results table, or a damaged one: row {number}: {one_line(error)}"
            ) from None
        row = legacy.completed(row) if is_old else row
        rows.append(row if "noisy" in header else legacy.with_noise(row))
    return _last(rows) if is_journal else rows


def _records(path: Path) -> list[list[str]]:
    """The header and the other records. Raises `ValueError` if there is no header."""
    contents = read_regular(path, MAX_RESULT_BYTES)
    if contents.partition(b"\n")[0].endswith(f",{SAMPLES}".encode()):
        contents = contents[: contents.rfind(b"\n") + 1]
        csv.field_size_limit(MAX_RESULT_BYTES)  # the samples of a row may be longer than Python's limit
    found = list(csv.reader(io.StringIO(contents.decode("utf-8-sig"), newline=""), strict=True))
    if not found:
        raise ValueError("No columns to parse from file")
    return found


def _last(rows: Iterable[Row]) -> list[Row]:
    """The last row of each key, in the order in which the keys first occur."""
    found: dict[Key, Row] = {}
    for row in rows:
        found[row.key] = row
    return list(found.values())


def _samples(text: str) -> tuple[float, ...]:
    """The samples of a record. Raises `ValueError` for a text that is no list of numbers."""
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(each, int | float) for each in found):
        raise ValueError(f"{SAMPLES} is {text[:40]!r}")
    return tuple(map(float, found))


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
