"""`compare --with`, whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from external_files import CUDA_FILE, RIGHT, TRITON_FILE, write

from suite.core.paths import ROOT
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import plan
from suite.runner.selection import Selection


@pytest.mark.thorough
def test_the_whole_command(tmp_path: Path) -> None:
    """From a folder with a torch.py, with --transfers, --compile and --json."""
    write(tmp_path / "torch.py", "raise SystemExit('not the real one')\n")
    write(tmp_path / "typer.py", "raise SystemExit('not the real one')\n")
    write(tmp_path / "mine.py", "print('[red]hello')\n" + RIGHT)
    write(tmp_path / "none.py", "x = 1\n")
    command = [sys.executable, "-m", "suite", "compare", "--op", "vector_add", "--with", "mine.py", "--with", "none.py"]
    command += ["--impl", "with/*", "--shape", "N=1000", "--dtype", "float32", "--device", "cpu", "--out", "results"]
    command += ["--transfers", "--compile", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    mine, none = json.loads(done.stdout)["rows"]
    assert (mine["implementation"], mine["status"], mine["execution"]) == ("with/mine", "ok", "native")
    assert mine["reason"] == "printed to stdout (mine.py:1)"
    assert "mine.py sha256 " in mine["versions"]
    for column in ("device_us", "latency_us", "program_us", "compile_s", "compile_warm_s"):
        assert mine[column] > 0, column
    assert mine["to_device_us"] == 0, "it is there already"
    assert (mine["vs_best"], mine["vendor"]) == (None, "")
    assert (none["status"], none["reason"]) == ("error", "none.py has no function vector_add; it defines x")
    assert "with/mine" in (tmp_path / "results" / "vector_add.csv").read_text(encoding="utf-8")


@pytest.mark.gpu
def test_files_of_every_framework_are_timed_on_a_gpu(tmp_path: Path) -> None:
    from suite.hardware.device import resolve

    files = [
        write(tmp_path / "t.py", RIGHT),
        write(tmp_path / "tri.py", TRITON_FILE),
        write(tmp_path / "c.cu", CUDA_FILE),
    ]
    files.append(write(tmp_path / "j.py", "framework = 'jax'\nimport jax\n@jax.jit\n" + RIGHT))
    selection = Selection(("vector_add",), ("torch",), shapes=("N=1048576",), files=tuple(files))
    rows = compare(plan(selection, resolve("cuda")), Options(resolve("cuda")))
    assert {(row.implementation, row.status, row.execution) for row in rows} == {
        (name, "ok", "native") for name in ("torch", "with/t", "with/tri", "with/c", "with/j")
    }
    assert all(row.device_us and row.vs_best for row in rows)
