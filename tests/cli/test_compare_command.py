"""`compare`: its files, its output and its exit status."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from commands import call

from suite.core.paths import ROOT
from suite.results.csv_file import read_rows
from suite.results.row import COLUMNS
from suite.results.samples import read_samples

SQUARE = "M=16,N=16,K=16"


def test_compare_writes_table_and_environment_and_exits_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--op", "matmul", "--shape", SQUARE, "--impl", "torch", "--impl", "numpy", "--device", "cpu", "--json"]
    arguments += ["--sustained", "none"]
    assert call(monkeypatch, "compare", *arguments, "--out", str(tmp_path)) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {(row["implementation"], row["dtype"], row["precision"]): row for row in document["rows"]}
    assert len(rows) == 2 * 4
    assert rows["numpy", "float32", "ieee"]["status"] == "ok"
    assert rows["numpy", "float32", "ieee"]["device_us"] > 0
    assert rows["numpy", "float32", "ieee"]["tflops"] == pytest.approx(
        2 * 16**3 / rows["numpy", "float32", "ieee"]["device_us"] / 1e6
    )
    assert rows["numpy", "float32", "tf32"]["status"] == "unsupported"
    with (tmp_path / "matmul.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == ("operation", "case", "M", "N", "K", "layout", "inputs", *COLUMNS[2:])
    assert [table[0][name] for name in ("M", "layout", "inputs", "flops")] == ["16", "nn", "normal", str(2 * 16**3)]
    assert len(table) == 8
    assert "## M=16,N=16,K=16 bfloat16 ieee" in (tmp_path / "matmul.md").read_text(encoding="utf-8")
    environment = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    assert environment["packages"]["torch"]
    assert "compare --op matmul" in environment["command"]
    files = {"matmul.csv", "matmul.md", "matmul.samples.npz", "environment.json"}
    assert {path.name for path in tmp_path.iterdir()} == files
    timed = [row for row in read_rows(tmp_path / "matmul.csv") if row.device_us]
    samples = read_samples(tmp_path / "matmul.samples.npz")
    assert samples.keys() == {row.key for row in timed}
    assert [(median(samples[row.key]), len(samples[row.key])) for row in timed] == [
        (row.device_us, row.samples) for row in timed
    ]


def test_a_wrong_row_exits_1_and_is_not_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The worker gets an implementation that subtracts. Its row is wrong, and the others are unchanged."""
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / "sitecustomize.py").write_text(
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch_impls.vector_add':\n"
        "            import importlib.util\n"
        f"            return importlib.util.spec_from_file_location(name, {str(faults / 'wrong.py')!r})\n"
        "sys.meta_path.insert(0, Finder())\n",
        encoding="utf-8",
    )
    (faults / "wrong.py").write_text("def vector_add(a, b):\n    return a - b\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(faults))
    arguments = ["--op", "vector_add", "--shape", "N=100", "--dtype", "float32", "--impl", "torch", "--impl", "numpy"]
    arguments += ["--sustained", "none"]
    assert call(monkeypatch, "compare", *arguments, "--device", "cpu", "--out", str(tmp_path / "out")) == 1
    with (tmp_path / "out" / "vector_add.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["implementation"]: row for row in csv.DictReader(file)}
    assert rows["torch"]["status"] == "wrong"
    assert "expected" in rows["torch"]["reason"]
    assert rows["torch"]["device_us"] == ""
    assert float(rows["torch"]["error_ratio"]) > 1
    assert rows["numpy"]["status"] == "ok"
    assert float(rows["numpy"]["device_us"]) > 0


def test_a_missing_framework_is_a_row_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "jax" else real(name, *rest))
    arguments = ["--op", "vector_add", "--shape", "N=100", "--impl", "jax", "--device", "cpu", "--json"]
    assert call(monkeypatch, "compare", *arguments, "--out", str(tmp_path)) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        assert row["status"] == "unavailable"
        assert "jax not installed: pip install" in row["reason"]


@pytest.mark.thorough
def test_a_terminal_gets_tables_and_a_marked_best_line(tmp_path: Path) -> None:
    """The command runs under a pseudo-terminal, as for a person."""
    command = [
        sys.executable,
        "-m",
        "suite",
        "compare",
        "--op",
        "vector_add",
        "--shape",
        "N=100000",
        "--dtype",
        "float32",
    ]
    command += ["--impl", "torch", "--impl", "numpy", "--device", "cpu", "--out", str(tmp_path), "--max-noise", "1000"]
    command += ["--sustained", "none"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "LINES": "50"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            shown += data
    assert process.returncode == 0
    text = shown.decode()
    assert "device us" in text
    assert " *" in text
