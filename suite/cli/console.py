"""How a run is shown: tables on stdout; progress on stderr, as a bar on a terminal and as lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from suite.cli.messages import say
from suite.problem.operation import Operation
from suite.results.render import text
from suite.results.row import Row
from suite.results.store import Results
from suite.runner.observer import Observer, Step


class RunConsole(Observer):
    """Follows a run: stores its rows in `results`, shows progress on stderr and the table of each case on stdout."""

    def __init__(self, results: Results, *, quiet: bool) -> None:
        self._results = results
        self._quiet = quiet
        self._stdout = Console()
        self._begin = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    @contextmanager
    def open(self) -> Iterator[RunConsole]:
        """Shows a progress bar while it is open, if stderr is a terminal."""
        errors = Console(stderr=True)
        if not errors.is_terminal:
            yield self
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=errors, transient=True) as bar:
            self._bar = bar, bar.add_task("starting")
            yield self

    def step(self, step: Step) -> None:
        what = f"{step.operation} {step.case}: {step.doing}"
        if self._bar is None:
            say(f"[{time.monotonic() - self._begin:.1f} s, {step.done}/{step.total}] {what}")
        else:
            bar, task = self._bar
            bar.update(task, total=step.total, completed=step.done, description=what)

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        self._results.put(operation.name, rows)

    def case_finished(self, operation: Operation, rows: Sequence[Row]) -> None:
        self._results.render(operation.name)
        if self._quiet:
            return
        if self._stdout.is_terminal:
            self._stdout.print(text.rich_table(rows))
        else:
            print("\n".join(text.plain_lines(rows)), flush=True)
