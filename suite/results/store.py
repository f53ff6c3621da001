"""Writes a results folder: `<operation>.csv`, its raw samples, `<operation>.md`, and `environment.json`.

During the run the table is a journal, which has the samples too. The other files are written once, at its end. The
Markdown is rendered from the rows. `environment.json` holds the record of the last run, and of each earlier run that
left a table in the folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from suite.results.journal import Journal
from suite.results.render import markdown
from suite.results.replacing import refuse_replacing
from suite.results.row import Key, Row
from suite.results.samples import SUFFIX, read_samples, to_npz


class Results:
    """Writes the rows of a run as they come: they are appended to a journal. No file changes before the first row.

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
        self._journals: dict[str, Journal] = {}
        self._unwritten: set[str] = set()
        """Operations whose files lack something that an earlier attempt could not write."""
        self._unfinished: set[str] = set()
        """Operations whose table is a journal."""
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
        state = previous.environment.pop("run")
        begun = state.get("begun")
        self._begun = list(dict.fromkeys([*previous.rows, *(begun if isinstance(begun, list) else ())]))
        previous.environment.pop(resume.EARLIER, None)
        times = previous.environment.get("resumed_utc")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._environment = {**previous.environment, "resumed_utc": [*(times if isinstance(times, list) else []), now]}
        self._tables = {name: rows for name, rows in previous.rows.items() if rows}
        self._listed = list(self._tables)
        self._unfinished = set() if state.get("complete") else set(self._tables)
        for name, rows in self._tables.items():
            for key, samples in self._samples_of(name).items():
                if key in rows and not rows[key].sample_us:  # those of a journal are the latest
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
        """Add copies of `rows`, replacing those of the same key, and append them to the operation's table."""
        new = [replace(row, sample_us=row.sample_us if self._keep_samples else ()) for row in rows]
        with uninterruptible():
            self._tables.setdefault(operation, {}).update((row.key, row) for row in new)
            self._unwritten.add(operation)
            self._unfinished.add(operation)
            self._attempt(lambda: self._append(operation, new))

    def complete(self) -> None:
        """Record that the run is complete, unless something could not be written."""
        self._write_pending()
        if self.problem is None and self._listed:
            self._complete = True
            self._attempt(self._write_environment)

    def _write_pending(self) -> None:
        """Write the tables as they stay, sorted by case, with the files beside them."""
        for operation in sorted(self._unfinished):
            self._unwritten.add(operation)
            self._attempt(lambda operation=operation: self._finish(operation))  # type: ignore[misc]

    def _append(self, operation: str, new: Sequence[Row]) -> None:
        """Append `new` to the journal, or write all rows to a new one.

        The environment record is written without a new table, then with it. A process that is killed in between may
        leave a new table that the record does not list, but never an old table that it lists as new.
        """
        self._begin(operation)
        journal = self._journals.pop(operation, None)
        if journal is None or not journal.append(new):
            journal = Journal(self._table(operation), self._tables[operation].values())
        self._journals[operation] = journal
        self._list(operation)
        self._unwritten.discard(operation)

    def _begin(self, operation: str) -> None:
        """Before the first row of an operation: claim its files, and remove those that belong to an earlier table."""
        if operation not in self._begun:
            self._begun.append(operation)
            self._write_environment()
        if operation not in self._listed:
            for kind in (SUFFIX, ".md"):
                with suppress(OSError):
                    (self.folder / f"{operation}{kind}").unlink()

    def _list(self, operation: str) -> None:
        if operation not in self._listed:
            self._listed.append(operation)
            self._write_environment()

    def _finish(self, operation: str) -> None:
        """Write samples, table and Markdown. The table comes after the samples, which the journal has until then."""
        self._begin(operation)
        rows = [row for case in cases(self._tables[operation].values()) for row in case]
        if any(row.sample_us for row in rows):
            write_atomically(self.folder / f"{operation}{SUFFIX}", to_npz(rows))
        write_atomically(self._table(operation), to_csv(rows))
        self._journals.pop(operation, None)
        self._list(operation)
        write_atomically(self.folder / f"{operation}.md", markdown(rows, self._environment))
        self._unfinished.discard(operation)
        self._unwritten.discard(operation)

    def _table(self, operation: str) -> Path:
        return self.folder / f"{operation}.csv"

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
