"""Helpers for test suites. `pytest_plugins = ["kernel_suite.testing"]` in `conftest.py` provides the fixture.

import pytest
from kernel_suite.testing import assert_agrees, cases, title

@pytest.mark.parametrize("case", cases("matmul", inputs="telling"), ids=title)
def test_my_matmul(case):
    assert_agrees(my_matmul, "matmul", case)

def test_my_matmul_is_as_fast_as_ever(assert_no_slower):
    assert_no_slower(my_matmul, "matmul", (4096, 4096, 4096), dtype="bfloat16")
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import pytest

from suite.api import cases, check, time
from suite.core.files import write_atomically
from suite.diff.change import Diff, Verdict
from suite.diff.judge import THRESHOLD, judge
from suite.diff.load import Side, load, row_key
from suite.diff.render import plain_line
from suite.problem.case import Case
from suite.results.csv_file import to_csv
from suite.results.row import Row
from suite.runner.arguments import title
from suite.runner.python_words import in_python_words

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from suite.checking.check import CheckResult

__all__ = ["NoSlower", "assert_agrees", "assert_no_slower", "cases", "title"]

BASELINES = "baselines"
"""Name of the folder beside a test file with the times of `assert_no_slower`. It has a folder for each device."""
SPEED = "speed"
"""The name of the property of a test's report with the result of `assert_no_slower`."""
P = ParamSpec("P")


def _asserting(check: Callable[P, CheckResult]) -> Callable[P, None]:
    """Makes an assertion of `check`, with the same parameters."""

    @functools.wraps(check, assigned=())
    def assert_agrees(*args: P.args, **kwargs: P.kwargs) -> None:
        __tracebackhide__ = True  # makes pytest show the line of the test
        found = check(*args, **kwargs)
        if not found.agrees:
            function, operation, case = _arguments_of_check(*args, **kwargs)
            where = title(case) if isinstance(case, Case) else f"{operation} {case}"
            name = getattr(function, "__name__", "the function")
            raise AssertionError(
                f"{name} is wrong on {where}: {found.explanation}; error / bound {found.error_ratio:.3g}"
            )

    return assert_agrees


def _arguments_of_check(
    function: object = None, operation: object = None, case: object = None, **_: object
) -> tuple[Any, ...]:
    return function, operation, case


assert_agrees = _asserting(check)
assert_agrees.__doc__ = """Raise `AssertionError`, with the reason, unless a function agrees on a case.

Takes the arguments of `suite.check`. Exceptions of the function pass through, such as the `NotImplementedError` for a
case that it refuses.
"""


class NoSlower:
    """Compares the device time of functions with baselines in a folder. The fixture `assert_no_slower` returns one."""

    def __init__(self, folder: Path, test: str, report_line: Callable[[str], None]) -> None:
        self._folder, self._test, self._report_line = folder, test, report_line
        self._count = 0

    def __call__(self, *args: Any, threshold: float = THRESHOLD, beside: str | list[str] = "torch", **how: Any) -> None:
        """Raise `AssertionError` if a function is slower than its baseline by more than `threshold`.

        The other arguments are those of `suite.time`. The compared value is the ratio to the vendor's implementation
        `beside`, by the rules of `python -m suite diff`. If there is no baseline, the times of this run become it.
        """
        __tracebackhide__ = True
        rows = list(time(*args, beside=beside, **how).rows)
        path = self._path(how.get("device"))
        if not path.exists():
            write_atomically(path, to_csv(rows))
            self._report_line(f"{self._test}: no baseline: this run's times are written to {_short_path(path)}")
            return
        with in_python_words():
            found = compared(path, rows, threshold)
        line = plain_line(found, found.changes[-1]) if found.changes else Verdict.UNTIMED.value
        self._report_line(f"{self._test}: {line}")
        if found.exit_status:
            raise AssertionError(f"{line}\n{_short_path(path)} is the baseline; delete it to accept the new time")

    def _path(self, device: str | None) -> Path:
        """The file of the baseline of this call. Each call of a test has its own file."""
        from suite.hardware.device import resolve

        self._count += 1
        name = re.sub(r"[^\w.=,+-]+", "_", self._test) + (f".{self._count}" if self._count > 1 else "")
        return self._folder / resolve(device).results_folder.name / f"{name}.csv"


def _short_path(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def compared(baseline: Path, rows: list[Row], threshold: float) -> Diff:
    """Compare the first of `rows`, the row of the function, with its baseline. The other rows are the vendor's.

    Raises `UsageError` for a baseline of another function, case, cache state or recorder.
    """
    new = Side(Path("this run"), {row_key(row): row for row in rows})
    found = judge(load(baseline), new, threshold)
    return replace(found, changes=tuple(change for change in found.changes if change.new is rows[0]))


@pytest.fixture
def assert_no_slower(request: pytest.FixtureRequest) -> NoSlower:
    """A function with the arguments of `suite.time` that fails if it is slower than in the stored baseline."""

    def report_line(line: str) -> None:
        request.node.user_properties.append((SPEED, line))

    return NoSlower(request.path.parent / BASELINES, f"{request.path.stem}.{request.node.name}", report_line)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print a line for each time that was compared or became a baseline."""
    lines = list(_speeds(terminalreporter))
    if lines:
        terminalreporter.section("speed against baselines")
        for line in lines:
            terminalreporter.write_line(line)


def _speeds(terminalreporter: TerminalReporter) -> Iterator[str]:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            if getattr(report, "when", "") == "call":
                yield from (line for name, line in report.user_properties if name == SPEED)
