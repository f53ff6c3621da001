"""Shared by tests that run whole commands, in this process or in another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from suite.cli import main as cli
from suite.results import resume

SMALL = ["--op", "vector_add", "--shape", "N=64", "--device", "cpu", "--no-time"]
PLAIN = [*SMALL, "--impl", "torch", "--impl", "numpy"]
SECONDS_TO_END = 60.0
"""Limit for the end of an interrupted run: one or two seconds where the processors are free, more where they are busy.
A run that waits for its workers' work takes ten times as long."""


def command(*arguments: str | Path) -> list[str]:
    """The command line of `compare` in a process of its own."""
    return [sys.executable, "-m", "suite", "compare", *map(str, arguments)]


def command_line(process: psutil.Process) -> list[str]:
    """The command line of a process; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """`python -m suite ARGUMENTS` in this process; the exit status."""
    monkeypatch.setattr(sys, "argv", ["suite", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.fixture(scope="module")
def fixed_code_digest() -> Iterator[None]:
    """`--resume` accepts the results of earlier code: the code may be edited while the tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "code_digest", lambda: "of today")
        yield
