"""The output of a run without a terminal: tables on stdout, progress on stderr."""

from __future__ import annotations

import io
import re
from typing import Any, ClassVar

import pytest
from rich.console import Console

from suite import ops
from suite.cli.console import RunConsole
from suite.results.render import View
from suite.results.row import Key, Row
from suite.runner.observer import Step

OP = ops.get("vector_add")


class NoResults:
    """Takes rows and keeps none."""

    kept: ClassVar[dict[Key, Row]] = {}

    def put(self, *_: object) -> None: ...

    def render(self, *_: object) -> None: ...


def row(implementation: str, **values: Any) -> Row:
    return Row("vector_add", "N=64", "float32", "ieee", implementation, device="cpu", **values)


def follow(*, view: View | None = None, tables: bool = True, progress: bool = True) -> None:
    """Shows one case of two rows."""
    rows = [
        row("torch", device_us=2.0, device_us_low=2.0, device_us_high=2.0, recorder="wall"),
        row("numpy", device_us=1.0, device_us_low=1.0, device_us_high=1.0, recorder="wall"),
    ]
    console = RunConsole(NoResults(), view=view, tables=tables, progress=progress)  # type: ignore[arg-type]
    with console.open():
        for done, each in enumerate(rows):
            console.step(Step("vector_add", "N=64", f"checking {each.implementation}", done, 2))
            console.store(OP, [each])
        console.store(OP, rows)
        console.case_finished(OP, rows)
    console.finished(rows)


def test_a_pipe_gets_a_line_for_each_case_without_the_unsupported_rows(capsys: pytest.CaptureFixture[str]) -> None:
    follow()
    out, err = capsys.readouterr()
    assert re.fullmatch(r"\[\d+\.\d s, 2/2\] vector_add N=64 fp32: 2 ok\n", err)
    assert [line.split()[0] for line in out.splitlines() if line] == ["vector_add", "implementation", "torch", "numpy"]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_gets_a_chart_unless_the_run_is_quiet(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, color_system=None, width=80, _environ={})
    monkeypatch.setattr("suite.cli.console.stdout", lambda: terminal)
    follow(tables=not quiet, progress=False)
    assert ("speed against the fastest, numpy" in file.getvalue()) is not quiet


def test_quiet_prints_no_progress_and_no_case(capsys: pytest.CaptureFixture[str]) -> None:
    follow(tables=False, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_file_gets_120_columns_or_as_many_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = View(columns=("case", "dtype", "precision", "execution", "status", "recorder", "device", "seed", "samples"))
    monkeypatch.delenv("COLUMNS", raising=False)
    follow(view=view, progress=False)
    wide = capsys.readouterr().out.splitlines()
    monkeypatch.setenv("COLUMNS", "60")
    follow(view=view, progress=False)
    narrow = capsys.readouterr().out.splitlines()
    assert 60 < max(map(len, wide)) <= 120
    assert max(map(len, narrow)) <= 60
    assert len(narrow) > len(wide)
