"""A results folder: `<operation>.csv`, `<operation>.md` rendered from it, and `environment.json`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from suite.core.errors import ResultsError
from suite.core.files import FolderLock, remove_parts, write_atomically
from suite.core.signals import uninterruptible
from suite.results import render as report
from suite.results import resume
from suite.results.row import Key, Row, read_csv, to_csv


class Results:
    """Writes the rows of a run as they come; each file is replaced whole, none is touched before the first row.

    While it is open no other run writes to the folder. A disk that refuses to take a row does not end the run:
    `problem` says why until a later attempt, which writes everything, succeeds; `tell` hears of it once.

    With `resumed`, the `settings` of the run that the folder holds have to be these, and its rows are in `kept`.
    Raises `UsageError` where that is not so or another run is writing, `ResultsError` where the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, Any],
        *,
        operations: Iterable[str] = (),
        settings: Mapping[str, Any] | None = None,
        resumed: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.folder = folder
        self.problem: ResultsError | None = None
        self._environment = dict(environment)
        self._settings = dict(settings or {})
        self._tell = tell
        self._tables: dict[str, dict[Key, Row]] = {}
        self._listed: list[str] = []
        self._unwritten: set[str] = set()
        self._unrendered: set[str] = set()
        self._complete = False
        operations = list(operations)
        self._lock = FolderLock(folder)
        try:
            names = [resume.ENVIRONMENT, *(f"{name}.{kind}" for name in operations for kind in ("csv", "md"))]
            remove_parts(folder, names)
            if resumed and (found := resume.find(folder, operations, self._settings)) is not None:
                self._continue(found)
        except BaseException:
            self._lock.release()
            raise
        self.kept = {key: row for table in self._tables.values() for key, row in table.items()}

    def _continue(self, found: resume.Found) -> None:
        """The record stays that of the first run, whose settings are the same, and notes when it was resumed."""
        del found.environment["run"]
        times = found.environment.get("resumed_utc")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._environment = {**found.environment, "resumed_utc": [*(times if isinstance(times, list) else []), now]}
        self._tables = {name: rows for name, rows in found.rows.items() if rows}
        self._listed = list(self._tables)

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._catch_up()
        finally:
            self._lock.release()

    @property
    def begun(self) -> bool:
        """Whether the folder has rows of this run."""
        return bool(self._listed)

    def put(self, operation: str, rows: Iterable[Row]) -> None:
        """Add rows, or replace those of the same key, and write the operation's table."""
        with uninterruptible():
            self._tables.setdefault(operation, {}).update((row.key, row) for row in rows)
            self._unwritten.add(operation)
            self._unrendered.add(operation)
            self._attempt(lambda: self._write(operation))

    def render(self, operation: str) -> None:
        """Bring `<operation>.md` up to date with the CSV."""
        if operation in self._unrendered:
            self._attempt(lambda: self._render(operation))

    def complete(self) -> None:
        """Note that nothing is left to be done, unless the disk has not taken everything."""
        self._catch_up()
        if self.problem is None and self._listed:
            self._complete = True
            self._attempt(self._write_environment)

    def _catch_up(self) -> None:
        """Write what could not be written before, and what was not worth rendering before the end of a case."""
        for operation in sorted(self._unwritten):
            self._attempt(lambda operation=operation: self._write(operation))  # type: ignore[misc]
        for operation in sorted(self._unrendered - self._unwritten):
            self.render(operation)

    def _write(self, operation: str) -> None:
        """The record first, which does not list the table yet; then the table; then the record which does. A process
        that is killed in between leaves a table that is not taken for this run's, rather than an old one that is."""
        if not self._listed:
            self._write_environment()
        write_atomically(self.folder / f"{operation}.csv", to_csv(self._tables[operation].values()))
        if operation not in self._listed:
            self._listed.append(operation)
            self._write_environment()
        self._unwritten.discard(operation)

    def _render(self, operation: str) -> None:
        path = self.folder / f"{operation}.csv"
        write_atomically(path.with_suffix(".md"), report.markdown(read_csv(path), self._environment))
        self._unrendered.discard(operation)

    def _write_environment(self) -> None:
        state = {"complete": self._complete, "tables": self._listed, "settings": self._settings}
        document = {**self._environment, "run": state}
        write_atomically(self.folder / resume.ENVIRONMENT, json.dumps(document, indent=2) + "\n")

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except ResultsError as error:
            if self.problem is None:
                self._tell(f"error: {error}; the run goes on")
            self.problem = error
        else:
            self.problem = self.problem if self._unwritten else None
