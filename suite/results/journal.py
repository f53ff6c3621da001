"""A table to which a run appends rows: the cost of storing them does not grow with the table."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from suite.core.files import append, write_atomically
from suite.results import dimensions
from suite.results.csv_file import journal_header, journal_records
from suite.results.row import Row


class Journal:
    """The journal at `path`, which replaces the table there and begins with `rows`. Raises `ResultsError`."""

    def __init__(self, path: Path, rows: Collection[Row]) -> None:
        self._path = path
        self._names = dimensions.names(rows)
        text = (journal_header(self._names) + journal_records(rows, self._names)).encode("utf-8", "backslashreplace")
        write_atomically(path, text)
        self._size = len(text)

    def append(self, rows: Collection[Row]) -> bool:
        """Append `rows`. Return False and change nothing if they have other columns, or if the file has been changed.

        Raises `ResultsError`.
        """
        if not set(dimensions.names(rows)) <= set(self._names):
            return False
        size = append(self._path, journal_records(rows, self._names), self._size)
        if size is None:
            return False
        self._size = size
        return True
