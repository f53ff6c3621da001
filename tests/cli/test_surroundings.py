"""Commands in unusual surroundings: closed streams, no working directory, an untrusted cache, untimely signals."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SMALL, call, command
from faulty import ROOT

from suite.results.csv_file import read_rows


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell; the packages of this tree are imported from any folder."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["/bin/sh", "-c", line], env=variables, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments", [["compare", *SMALL], ["doctor", "--measure"]], ids=["compare", "doctor"])
def test_an_empty_folder_name_is_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *arguments, "--out", "") == 2
    assert capsys.readouterr().err == "error: --out '' is empty; give a folder, . for the current one\n"
    assert list(tmp_path.iterdir()) == []


def test_a_python_without_the_packages_is_told_what_to_do() -> None:
    done = shell(f"{shlex.quote(sys.executable)} -S -m suite exercise")  # -S: without site-packages
    assert done.returncode == 1
    assert done.stderr.startswith("No module named 'typer': ")
    assert ". .venv/bin/activate" in done.stderr


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", pytest.param("2>&-", marks=pytest.mark.thorough)])
def test_closed_standard_streams_cost_no_row(closed: str, tmp_path: Path) -> None:
    line = shlex.join(command(*SMALL, "--impl", "numpy", "--out", tmp_path / "out"))
    done = shell(f"cd {shlex.quote(str(ROOT))}; {line} {closed}")
    assert done.returncode == 0, done.stderr
    assert {row.status for row in read_rows(tmp_path / "out" / "vector_add.csv")} == {"ok"}


def test_a_deleted_working_directory_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    for arguments in (["list"], ["compare", *SMALL]):
        gone.mkdir(exist_ok=True)
        done = shell(f"cd {gone}; rmdir {gone}; exec {sys.executable} -P -m suite {shlex.join(arguments)}")
        said = "error: the working directory does not exist any more: change to another\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_workers_leave_no_temporary_caches(tmp_path: Path) -> None:
    """If the user's cache is not private, a worker uses folders of its own while it runs."""
    temporary, shared = tmp_path / "tmp", tmp_path / "cache"
    temporary.mkdir()
    (shared / "kernel-suite").mkdir(parents=True)
    (shared / "kernel-suite").chmod(0o777)
    line = shlex.join(command(*SMALL, "--impl", "numpy", "--out", tmp_path / "out"))
    done = shell(
        f"cd {shlex.quote(str(ROOT))}; {line}",
        TMPDIR=str(temporary), XDG_CACHE_HOME=str(shared), TRITON_CACHE_DIR="", TORCHINDUCTOR_CACHE_DIR="",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in temporary.iterdir() if path.name.startswith("suite-cache")] == []


SIGNALLED = """
import os, re, signal, sys, time
from pathlib import Path
from suite.core.files import FolderLock
from suite.core.signals import interruptible_command

class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.{signal})
        for _ in range(1000): pass

with interruptible_command():
    lock = FolderLock(Path(sys.argv[1]))
    {body}
"""
MOMENTS = {
    "in a destructor": "Late(); time.sleep(600)",
    "before anything could clean up": "os.kill(os.getpid(), signal.{signal})",
    "while the clean-up hangs": (
        "try: os.kill(os.getpid(), signal.{signal}); time.sleep(600)\n    except KeyboardInterrupt: time.sleep(600)"
    ),
}


@pytest.mark.parametrize(
    "fatal", [pytest.param(signal.SIGHUP, marks=pytest.mark.thorough), signal.SIGTERM], ids=["SIGHUP", "SIGTERM"]
)
@pytest.mark.parametrize("body", MOMENTS.values(), ids=MOMENTS.keys())
def test_a_signal_leaves_neither_a_lock_nor_a_traceback(body: str, fatal: signal.Signals, tmp_path: Path) -> None:
    program = SIGNALLED.replace("{body}", body).replace("{signal}", fatal.name)
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "out"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (128 + fatal, "")
    assert "Exception ignored" not in done.stderr
    assert not (tmp_path / "out").exists()
