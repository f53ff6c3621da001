"""Results folders that are full, read-only, in use or in the way: one clear line, and existing files stay."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import PLAIN, SMALL, call, command
from faulty import ROOT, inject

from suite.core.errors import ResultsError, UsageError
from suite.core.files import PART, FolderLock
from suite.results.csv_file import read_rows
from suite.results.row import Row
from suite.results.store import Results


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small file system of its own; skips where this user may not mount one."""
    folder = tmp_path / "mounted"
    folder.mkdir()

    def mount(options: str) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, check=False
        )
        if done.returncode != 0:
            pytest.skip("may not mount a file system here")
        return folder

    if shutil.which("mount") is None:
        pytest.skip("there is no mount")
    yield mount
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def fill(disk: Path, free_pages: int = 0) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096) == 4096:
            pass
    os.truncate(filler, filler.stat().st_size - 4096 * free_pages)
    return filler


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(PART) or path.name == ".lock"]


def test_a_full_disk_keeps_what_was_there_and_gets_the_rest_when_it_has_room(mounted: Callable[[str], Path]) -> None:
    disk = mounted("size=64k")
    old = disk / "vector_add.csv"
    old.write_text("an older table", encoding="utf-8")
    filler = fill(disk)
    with pytest.raises(ResultsError, match=r"cannot write results to .*: No space left on device; give another folder"):
        Results(disk, {})
    fill(disk, free_pages=2)  # for the lock and the environment record, not for the table
    said: list[str] = []
    with Results(disk, {}, on_problem=said.append) as results:
        for name in ("torch", "numpy"):
            results.put("vector_add", [Row("vector_add", "N=64", "float32", "ieee", name)])
        assert "No space left on device; what was there is unchanged" in str(results.problem)
        assert len(said) == 1
        assert old.read_text(encoding="utf-8") == "an older table"
        filler.unlink()
        results.complete()
        assert results.problem is None
    assert [row.implementation for row in read_rows(old)] == ["torch", "numpy"]
    assert json.loads((disk / "environment.json").read_text(encoding="utf-8"))["run"]["complete"]
    assert parts(disk) == []


def test_a_kernel_that_fills_the_disk_costs_the_files_not_the_table_on_screen(
    mounted: Callable[[str], Path], tmp_path: Path
) -> None:
    disk = mounted("size=64k")
    body = f"import contextlib\n    with open({str(disk / 'filler')!r}, 'ab', 0) as f, contextlib.suppress(OSError):\n"
    body += "        while f.write(b'x' * 4096): pass\n    return a + b"
    environment = {**os.environ, "PYTHONPATH": inject(tmp_path / "faults", {"fills": body})}
    arguments = [*SMALL, "--dtype", "float32", "--impl", "torch", "--impl", "torch/fills", "--impl", "numpy"]
    done = subprocess.run(
        command(*arguments, "--out", disk), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    assert len(re.findall(r" ok  +0\.667", done.stdout)) == 3
    assert done.stderr.count("No space left on device") >= 1
    assert "Traceback" not in done.stderr
    assert "written to" not in done.stderr
    assert read_rows(disk / "vector_add.csv")[0].implementation == "torch"
    assert parts(disk) == []


@pytest.mark.thorough
def test_a_limit_on_file_sizes_is_a_full_disk_too(tmp_path: Path) -> None:
    (tmp_path / "vector_add.csv").write_text("an older table", encoding="utf-8")
    done = subprocess.run(
        command(*PLAIN, "--dtype", "float32", "--force", "--out", tmp_path),
        cwd=ROOT, capture_output=True, text=True, timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)),
    )  # fmt: skip
    assert done.returncode == 1
    assert len(re.findall(r" ok  +0\.667", done.stdout)) == 2
    assert "environment.json: File too large; what was there is unchanged; the run goes on" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "vector_add.csv").read_text(encoding="utf-8") == "an older table"
    assert parts(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_one_line_before_any_work(
    mounted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = mounted("size=64k,ro")
    assert call(monkeypatch, "compare", *PLAIN, "--out", folder) == 2
    printed = capsys.readouterr()
    assert printed.err == (
        f"error: cannot write results to {folder}: Read-only file system; give another folder with --out\n"
    )
    assert call(monkeypatch, "compare", *PLAIN, "--out", folder / "new") == 2
    assert "Read-only file system" in capsys.readouterr().err


def test_a_file_in_the_way_is_named_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert call(monkeypatch, "compare", *PLAIN, "--out", tmp_path / "file" / "below") == 2
    assert f"--out {tmp_path}/file/below: {tmp_path}/file is a file; give a folder" in capsys.readouterr().err
    (tmp_path / "out" / "vector_add.csv").mkdir(parents=True)
    said: list[str] = []
    with Results(tmp_path / "out", {}, on_problem=said.append) as results:
        results.put("vector_add", [Row("vector_add", "N=64", "float32", "ieee", "torch")])
    assert "vector_add.csv: Is a directory; what was there is unchanged" in said[0]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
    assert parts(tmp_path / "out") == []


def test_a_missing_folder_is_made_and_an_unused_one_is_removed(tmp_path: Path) -> None:
    with Results(tmp_path / "a" / "b", {}) as results:
        results.complete()
    assert not (tmp_path / "a").exists()
    with Results(tmp_path / "a" / "b", {}) as results:
        results.put("vector_add", [Row("vector_add", "N=64", "float32", "ieee", "torch")])
    assert (tmp_path / "a" / "b" / "vector_add.csv").exists()


def test_two_runs_into_one_folder_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second run ends at once and names the process that uses the folder. A killed process leaves no lock."""
    code = "import sys, time; from pathlib import Path; from suite.core.files import FolderLock\n"
    code += f"lock = FolderLock(Path({str(tmp_path)!r})); print('locked', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        assert call(monkeypatch, "compare", *PLAIN, "--out", tmp_path) == 2
        assert f"process {first.pid} is writing results there" in capsys.readouterr().err
        first.kill()
    assert (tmp_path / ".lock").exists()
    lock = FolderLock(tmp_path)
    with pytest.raises(UsageError, match=f"process {os.getpid()} is writing"):
        FolderLock(tmp_path)
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_partial_files_of_a_killed_run_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (f".vector_add.csv.abc{PART}", f".environment.json.abc{PART}", f".limits.json.abc{PART}", "mine"):
        (tmp_path / name).touch()
    with Results(tmp_path, {}, operations=["vector_add"]):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {f".limits.json.abc{PART}", "mine"}
