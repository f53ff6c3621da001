"""Shows a run: tables on stdout as cases end; on a terminal also the rows of the case in progress and a bar."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from suite.cli.messages import say
from suite.problem.operation import Operation
from suite.results.render import View, case_lines, chart_lines, matrix_lines, overview_lines
from suite.results.render.summary import progress_line
from suite.results.row import Key, Row
from suite.results.store import Results
from suite.runner.observer import Observer, Step

WIDTH_OF_FILES = 120
"""Width in characters of output to a file or a pipe, unless the variable COLUMNS is set."""


def stdout() -> Console:
    """The console for results, as wide as the terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=WIDTH_OF_FILES)


def print_lines(console: Console, lines: Sequence[Text | str]) -> None:
    """Print lines as they are, without folding or cutting them."""
    if lines:
        console.print(Text("\n").join(Text(line) if isinstance(line, str) else line for line in lines), soft_wrap=True)
        console.file.flush()


class RunConsole(Observer):
    """Stores the rows of a run in `results` and shows them.

    tables: print a table for each case on stdout. progress: a bar on a terminal, else a line for each case on stderr.
    """

    def __init__(
        self, results: Results, *, view: View | None = None, tables: bool = True, progress: bool = True
    ) -> None:
        self._results = results
        self._view = view or View()
        self._tables = tables
        self._progress = progress
        self._stdout = stdout()
        self._begin = time.monotonic()
        self._case: dict[Key, Row] = {}
        """The rows of the case in progress."""
        self._bar: Progress | None = None
        self._refresh: Callable[[], None] = lambda: None
        self._lines: Sequence[Text] = ()
        self._finished: set[Key] = set(results.kept)
        self._total = 0
        """The number of all rows of the run; 0 if it is not known yet."""

    @contextmanager
    def open(self) -> Iterator[RunConsole]:
        """Show the rows of the case in progress and a bar on a terminal. Both disappear at the end of the context."""
        errors = Console(stderr=True)
        if not (self._progress and errors.is_terminal):
            yield self
            return
        console = self._stdout if self._stdout.is_terminal else errors
        text = TextColumn("{task.description}", markup=False)
        self._bar = Progress(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
        self._bar.add_task("starting", total=None)
        live = Live(console=console, get_renderable=lambda: self._in_progress(console), transient=True)
        self._refresh = live.refresh
        with live:
            yield self

    def _in_progress(self, console: Console) -> RenderableType:
        room = max(console.height - 4, 1)
        return Group(*self._lines[-room:], self._bar or "")

    def step(self, step: Step) -> None:
        self._total = step.total
        if self._bar is not None:
            what = f"{step.operation} {step.case}: {step.doing}"
            self._bar.update(self._bar.task_ids[0], total=step.total, completed=step.done, description=what)
        elif self._progress and not step.case:  # builds before the first case may take minutes
            say(f"[{time.monotonic() - self._begin:.1f} s] {step.doing}")

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        self._results.put(operation.name, rows)
        for row in rows:
            self._case = {key: each for key, each in self._case.items() if each.case_key == row.case_key}
            self._case[row.key] = row
        if self._bar is not None:
            self._lines = case_lines(list(self._case.values()), self._bar.console.width, self._view)

    def case_finished(self, operation: Operation, rows: Sequence[Row]) -> None:
        self._case, self._lines = {}, ()
        self._finished.update(row.key for row in rows)
        if self._progress and self._bar is None and (found := progress_line(rows)):
            say(f"[{time.monotonic() - self._begin:.1f} s, {len(self._finished)}/{self._total}] {found}")
        self._refresh()  # otherwise the rows in progress would stay below the table
        if self._tables:
            print_lines(self._stdout, [*case_lines(rows, self._stdout.width, self._view), Text()])

    def finished(self, rows: Sequence[Row]) -> None:
        """Print the overview of all cases, and of all operations if there are several. A terminal also gets a chart."""
        if not self._tables:
            return
        console, baseline = self._stdout, self._view.baseline
        if console.is_terminal:
            chart = chart_lines(rows, console.width, baseline, plain=console.options.ascii_only)
            print_lines(console, [*chart, Text()] if chart else [])
        overview, matrix = (lines(rows, console.width, baseline) for lines in (overview_lines, matrix_lines))
        print_lines(console, [*overview, *([Text()] if overview and matrix else []), *matrix])
