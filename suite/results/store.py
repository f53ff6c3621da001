"""Writes a results folder: `<operation>.csv`, its raw samples, `<operation>.md`, and `environment.json`.

The Markdown is rendered from the rows. `environment.json` holds the record of the last run, and of each earlier run
that left a table in the folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from suite.core.errors import ResultsError
from suite.core.files import FolderLock, remove_parts, write_atomically
from suite.core.signals import uninterruptible
from suite.results import resume
from suite.results.csv_file import to_csv
from suite.results.groups import cases
from suite.results.render import markdown
from suite.results.replacing import refuse_replacing
from suite.results.row import Key, Row
from suite.results.samples import SUFFIX, read_samples, to_npz


class Results:
    """Writes the rows of a run as they come. A file is replaced as a whole; no file changes before the first row.

    The folder is locked while this is open, so that no other run writes there. A full disk does not end the run:
    `problem` holds the error until a later attempt writes everything, and `on_problem` is called with it once.

    With `resumed`, the folder may hold an interrupted run with the same `settings`. `kept` then has its rows, except
    those whose worker was killed from outside. Without `keep_samples`, raw samples are not written. Without `force`,
    files of `operations` that this run did not write are not replaced.

    Raises `UsageError` for such files, for a run with other settings, for a folder that cannot be used, and while
    another run writes there; `ResultsError` for a full disk.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, Any],
        *,
        operations: Iterable[str] = (),
        settings: Mapping[str, Any] | None = None,
        resumed: bool = False,
        keep_samples: bool = True,
        force: bool = False,
        on_problem: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.folder = folder
        self.problem: ResultsError | None = None
        self._environment = dict(environment)
        self._settings = dict(settings or {})
        self._keep_samples = keep_samples
        self._on_problem = on_problem
        self._tables: dict[str, dict[Key, Row]] = {}
        self._listed: list[str] = []
        """Operations whose CSV has rows of this run: `tables` of the environment record."""
        self._begun: list[str] = []
        """Operations whose files are this run's, or are about to be: `begun` of the environment record."""
        self._unwritten: set[str] = set()
        self._unrendered: set[str] = set()
        self._sampled: set[str] = set()
        """Operations with samples that are not written yet."""
        self._complete = False
        operations = list(operations)
        self._lock = FolderLock(folder)
        try:
            kinds = (".csv", ".md", SUFFIX)
            names = [resume.ENVIRONMENT, *(f"{name}{kind}" for name in operations for kind in kinds)]
            remove_parts(folder, names)
            self._earlier = resume.table_records(folder)
            if resumed and (found := resume.find(folder, operations, self._settings)) is not None:
                self._continue(found)
            if not force:
                refuse_replacing(folder, operations, self._begun)
        except BaseException:
            self._lock.release()
            raise
        everything = [row for table in self._tables.values() for row in table.values()]
        self.kept = {row.key: replace(row) for row in everything if not row.killed_from_outside}

    def _continue(self, previous: resume.PreviousRun) -> None:
        """Take over the rows and the environment record of the interrupted run, and record the time of resuming."""
        begun = previous.environment.pop("run").get("begun")
        self._begun = list(dict.fromkeys([*previous.rows, *(begun if isinstance(begun, list) else ())]))
        previous.environment.pop(resume.EARLIER, None)
        times = previous.environment.get("resumed_utc")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._environment = {**previous.environment, "resumed_utc": [*(times if isinstance(times, list) else []), now]}
        self._tables = {name: rows for name, rows in previous.rows.items() if rows}
        self._listed = list(self._tables)
        for name, rows in self._tables.items():
            for key, samples in self._samples_of(name).items():
                if key in rows:
                    rows[key].sample_us = samples

    def _samples_of(self, operation: str) -> dict[Key, tuple[float, ...]]:
        try:
            return read_samples(self.folder / f"{operation}{SUFFIX}")
        except ResultsError as error:
            self._on_problem(str(error))
            return {}

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._write_pending()
        finally:
            self._lock.release()

    @property
    def begun(self) -> bool:
        """True if the folder has rows of this run."""
        return bool(self._listed)

    def put(self, operation: str, rows: Iterable[Row]) -> None:
        """Add copies of `rows`, replacing those of the same key, and write the operation's CSV and samples."""
        rows = list(rows)
        with uninterruptible():
            if self._keep_samples and any(row.sample_us for row in rows):
                self._sampled.add(operation)
            self._tables.setdefault(operation, {}).update((row.key, replace(row)) for row in rows)
            self._unwritten.add(operation)
            self._unrendered.add(operation)
            self._attempt(lambda: self._write(operation))

    def render(self, operation: str) -> None:
        """Render `<operation>.md` again if its rows have changed."""
        if operation in self._unrendered:
            self._attempt(lambda: self._render(operation))

    def complete(self) -> None:
        """Record that the run is complete, unless something could not be written."""
        self._write_pending()
        if self.problem is None and self._listed:
            self._complete = True
            self._attempt(self._write_environment)

    def _write_pending(self) -> None:
        """Write what an earlier attempt could not write, and render the tables that have changed."""
        for operation in sorted(self._unwritten):
            self._attempt(lambda operation=operation: self._write(operation))  # type: ignore[misc]
        for operation in sorted(self._unrendered - self._unwritten):
            self.render(operation)

    def _write(self, operation: str) -> None:
        """Write the environment record without this table, the samples, the table, and the record with the table.

        A process that is killed in between may leave a new table that the record does not list, but never an old table
        that it lists as new. Samples come before the table, so that a time in the table has its samples.
        """
        if operation not in self._begun:
            self._begun.append(operation)
            self._write_environment()
        problem: ResultsError | None = None
        try:
            self._write_samples(operation)
        except ResultsError as error:
            problem = error
        together = cases(self._tables[operation].values())  # several devices finish rows of several cases in turns
        write_atomically(self.folder / f"{operation}.csv", to_csv(row for rows in together for row in rows))
        if operation not in self._listed:
            self._listed.append(operation)
            self._write_environment()
        if problem is not None:
            raise problem
        self._unwritten.discard(operation)

    def _write_samples(self, operation: str) -> None:
        """Write the samples if there are new ones. Remove those of an earlier run."""
        path = self.folder / f"{operation}{SUFFIX}"
        if operation in self._sampled:
            write_atomically(path, to_npz(self._tables[operation].values()))
            self._sampled.discard(operation)
        elif operation not in self._listed:
            with suppress(OSError):
                path.unlink()

    def _render(self, operation: str) -> None:
        rows = list(self._tables[operation].values())
        write_atomically(self.folder / f"{operation}.md", markdown(rows, self._environment))
        self._unrendered.discard(operation)

    def _write_environment(self) -> None:
        state = {
            "complete": self._complete,
            "tables": self._listed,
            "begun": self._begun,
            "settings": self._settings,
        }
        document = {**self._environment, "run": state}
        if earlier := {name: record for name, record in self._earlier.items() if name not in self._listed}:
            document[resume.EARLIER] = earlier
        write_atomically(self.folder / resume.ENVIRONMENT, json.dumps(document, indent=2) + "\n")

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except ResultsError as error:
            if self.problem is None:
                self._on_problem(f"error: {error}; the run goes on")
            self.problem = error
        else:
            self.problem = self.problem if self._unwritten else None
