"""The output of a run without a terminal: tables on stdout, progress on stderr."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from commands import SMALL, call
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


@pytest.mark.parametrize("as_json", [False, True])
def test_quiet_prints_what_failed_and_the_verdict_and_no_more(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong rows on stdout, or on stderr beside a JSON document."""
    noisy = {"device_us": 1.0, "device_us_low": 0.5, "device_us_high": 1.5, "noisy": True, "weakness": "w"}
    rows = [row("torch", **noisy), row("numpy", status="wrong", reason="value: at [0]"), row("jax", status="timeout")]

    def run(jobs: Any, options: Any, console: RunConsole, kept: Any) -> list[Row]:
        console.step(Step("vector_add", "N=64", "checking", 0, 3))
        console.store(OP, rows)
        console.case_finished(OP, rows)
        return rows

    monkeypatch.setattr("suite.runner.compare.compare", run)
    more = ["--json"] if as_json else []
    assert call(monkeypatch, "compare", *SMALL, "--quiet", *more, "--out", tmp_path / "out") == 1
    out, err = capsys.readouterr()
    failed = ["vector_add N=64 fp32: numpy wrong: value: at [0]", "vector_add N=64 fp32: jax timeout"]
    verdict = f"3 rows: 1 ok, 1 wrong, 1 timeout; written to {tmp_path / 'out'}"
    assert (err if as_json else out).splitlines()[:2] == failed
    assert err.splitlines()[-1] == verdict
    assert len(err.splitlines()) == (3 if as_json else 1)
    assert len(json.loads(out)["rows"]) == 3 if as_json else out.count("\n") == 2


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


def test_a_pipe_hears_of_builds_before_the_first_case(capsys: pytest.CaptureFixture[str]) -> None:
    console = RunConsole(NoResults(), tables=False)  # type: ignore[arg-type]
    console.step(Step("all", "", "building 12 kernels ahead, 2 at a time", 0, 3))
    console.step(Step("vector_add", "N=64", "checking", 0, 3))
    assert capsys.readouterr().err.endswith("s] building 12 kernels ahead, 2 at a time\n")
