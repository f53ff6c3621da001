"""Commands that read results meet each kind of file in each place: an error of one line, no traceback, no hang."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
from diff.rows import folder, run
from report.rows import RECORD, row
from thinning import covering_values, thorough_unless

from suite.cli.emulate import emulate
from suite.core import files
from suite.core.errors import SuiteError, UsageError
from suite.results import samples
from suite.results.samples import SUFFIX, read_samples, to_npz
from suite.results.store import Results

SECONDS = 60
LARGE = 1 << 21
"""Bytes of a large file; half of them may be read here."""


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGE)


def unpacks_large(path: Path) -> None:
    import numpy as np

    np.savez_compressed(path.with_suffix(".npz"), device_us=np.zeros(LARGE // 8))
    os.replace(path.with_suffix(".npz"), path)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "folder": lambda path: path.mkdir(),
    "large": large,
    "unpacks large": unpacks_large,
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "number": lambda path: path.write_text("1" * 9999, encoding="ascii"),
    "deep": lambda path: path.write_text("[" * 100_000, encoding="ascii"),
}
PLACES = ("matmul.csv", "environment.json", f"matmul{SUFFIX}", "README.md")
ALL = [*product(KINDS, PLACES)]
IN_MAKE_TEST = covering_values(ALL)


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A read that hangs ends, files that are too large to be read are small, and no plot is drawn."""
    monkeypatch.setattr(import_module("suite.report.write"), "named_plots", lambda runs: [])
    for module in (files, samples):
        monkeypatch.setattr(module, "MAX_RESULT_BYTES", LARGE // 2)

    def overdue(*_: object) -> None:
        raise AssertionError(f"hangs for {SECONDS} s")

    before = signal.signal(signal.SIGALRM, overdue)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def results(path: Path, place: str, kind: str) -> Path:
    """Results with a file of this kind in the place of one of theirs."""
    folder(path, [row("torch"), row("triton", 0.9)], RECORD)
    (path / f"matmul{SUFFIX}").write_bytes(to_npz([]))
    (path / place).unlink(missing_ok=True)
    KINDS[kind](path / place)
    return path


@pytest.mark.parametrize(
    ("kind", "place"),
    [pytest.param(*each, id="-".join(each), marks=thorough_unless(each in IN_MAKE_TEST)) for each in ALL],
)
def test_each_kind_of_file_is_read_or_named(
    kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = folder(tmp_path / "sound", [row("torch"), row("triton")], RECORD)
    found = results(tmp_path / "device" / "runs" / "2026-11-10-matmul", place, kind)
    commands = [
        ["diff", sound, found],
        ["diff", found / "matmul.csv", sound],
        ["report", found, "--format", "md"],
        ["report", sound, found, "--format", "md", "--out", tmp_path / "out"],
        ["history", tmp_path / "device"],
    ]
    for command in commands:
        status = run(monkeypatch, *command)
        printed = capsys.readouterr()
        assert status in (0, 1, 2, 3), command
        if status == 2:
            *damage, error = printed.err.splitlines()
            assert error.startswith("error: "), (command, printed.err)
            assert all(line.startswith("left out: ") for line in damage), (command, printed.err)
    with suppress(SuiteError), Results(found, {}, operations=["matmul"], settings={}, resumed=True):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_each_kind_are_refused(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "it.npz")
    if kind == "link to nothing":
        assert read_samples(tmp_path / "it.npz") == {}
        return
    with pytest.raises(SuiteError, match="no readable file of samples"):
        read_samples(tmp_path / "it.npz")


@pytest.mark.parametrize("kind", ["pipe", "device", "link to nothing", "link to itself", "folder", "large"])
def test_emulate_refuses_what_is_no_source(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_SOURCE_BYTES", LARGE // 2)
    KINDS[kind](tmp_path / "program.cu")
    with pytest.raises(UsageError, match=r"program\.cu: (no such file|has more than)"):
        emulate(tmp_path / "program.cu", None, False)
