"""The command line: what it refuses before any work, what it prints, and how it exits."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from suite import ops
from suite.cli import main as cli
from suite.implementations import builtin
from suite.results.row import COLUMNS

ROOT = Path(__file__).resolve().parents[1]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """`python -m suite ARGUMENTS` in this process; the exit status."""
    monkeypatch.setattr(sys, "argv", ["suite", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


SQUARE = "M=16,N=16,K=16"
REFUSED = {
    "operation": (["--op", "matmull"], "unknown operation 'matmull'; there are vector_add"),
    "implementation": (["--op", "matmul", "--impl", "fortran"], "--impl 'fortran' matches none of triton, "),
    "with-twice": (["--op", "matmul", "--with", "k.py", "--with", "other/k.cu"], "with/k is k.py already; rename one"),
    "with-nameless": (["--op", "matmul", "--with", "/"], "--with '/': its name, without the suffix, cannot be shown"),
    "dtype": (
        ["--op", "matmul", "--dtype", "float64"],
        "--dtype: unknown 'float64'; valid are float32, float16, bfloat16",
    ),
    "precision": (["--op", "matmul", "--precision", "fp8"], "--precision: unknown 'fp8'; valid are ieee, tf32"),
    "precision-of-dtype": (["--op", "matmul", "--dtype", "float16", "--precision", "tf32"], "no case left: matmul"),
    "precision-of-op": (["--op", "sigmoid", "--precision", "tf32"], "no case left: sigmoid has no tf32"),
    "dimension-missing": (["--op", "matmul", "--shape", "M=16,N=16"], "missing K; matmul takes e.g. M=512,N=512,K=512"),
    "dimension-unknown": (["--op", "matmul", "--shape", "M=16,N=16,Q=16"], "unknown dimension 'Q'; matmul has M, N, K"),
    "dimension-negative": (["--op", "matmul", "--shape", "M=16,N=16,K=-4"], "K=-4 must be at least 0"),
    "dimension-text": (["--op", "matmul", "--shape", "M=16,N=16,K=big"], "K='big' is not a whole number"),
    "too-large": (["--op", "matmul", "--shape", "M=9999999,N=9999999,K=9999999"], "needs at least"),
    "shape-of-many": (["--op", "all", "--shape", SQUARE], "--shape names the dimensions of one operation"),
    "causal": (["--op", "matmul", "--causal"], "--causal/--no-causal is not an option of matmul"),
    "layout": (["--op", "sigmoid", "--layout", "nt"], "--layout is not an option of sigmoid"),
    "layout-unknown": (["--op", "matmul", "--layout", "zz"], "--layout: unknown 'zz'; valid are nn, nt, tn, tt"),
    "device": (["--op", "matmul", "--device", "tpu"], "--device: unknown 'tpu'; valid are cpu, cuda and cuda:INDEX"),
    "device-index": (["--op", "matmul", "--device", "cuda:99"], "--device cuda:99: "),
    "cache": (["--op", "matmul", "--cache", "tepid"], "--cache: unknown 'tepid'; valid are cold, warm"),
    "heads": (["--op", "attention", "--shape", "B=1,H=3,H_kv=2,S_q=4,S_k=4,D=64"], "H=3 must be a multiple of H_kv=2"),
}


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_unusable_arguments_are_one_line_and_exit_2_before_any_work(
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = tmp_path / "matmul.csv"
    kept.write_text("earlier results\n", encoding="utf-8")
    assert run(monkeypatch, "compare", *arguments, "--out", str(tmp_path)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert complaint in printed.err
    assert kept.read_text(encoding="utf-8") == "earlier results\n"
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare"],
        ["compare", "--op"],
        ["compare", "--op", "matmul", "--seed", "x"],
        ["comparison"],
        ["compare", "--wat"],
    ],
    ids=" ".join,
)
def test_arguments_that_do_not_parse_exit_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, *arguments) == 2


def test_out_that_is_a_file_is_an_error_and_the_file_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "notes"
    target.write_text("mine", encoding="utf-8")
    assert run(monkeypatch, "compare", "--op", "vector_add", "--out", str(target)) == 1
    assert "is a file; give a folder" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == "mine"


def test_compare_writes_table_and_environment_and_exits_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--op", "matmul", "--shape", SQUARE, "--impl", "torch", "--impl", "numpy", "--device", "cpu", "--json"]
    assert run(monkeypatch, "compare", *arguments, "--out", str(tmp_path)) == 0
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
    assert tuple(table[0]) == COLUMNS
    assert len(table) == 8
    assert "## M=16,N=16,K=16 bfloat16 ieee" in (tmp_path / "matmul.md").read_text(encoding="utf-8")
    environment = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    assert environment["packages"]["torch"]
    assert "compare --op matmul" in environment["command"]
    assert {path.name for path in tmp_path.iterdir()} == {"matmul.csv", "matmul.md", "environment.json"}


def test_a_wrong_row_exits_1_and_is_not_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The worker is given an implementation that subtracts; its row says so and the others are as they were."""
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
    assert run(monkeypatch, "compare", *arguments, "--device", "cpu", "--out", str(tmp_path / "out")) == 1
    with (tmp_path / "out" / "vector_add.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["implementation"]: row for row in csv.DictReader(file)}
    assert rows["torch"]["status"] == "wrong"
    assert "expected" in rows["torch"]["reason"]
    assert rows["torch"]["device_us"] == ""
    assert float(rows["torch"]["error_ratio"]) > 1
    assert rows["numpy"]["status"] == "ok"
    assert float(rows["numpy"]["device_us"]) > 0


def test_list_names_every_implementation_of_every_operation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "list", "--device", "cpu", "--json") == 0
    listed = {(i["operation"], i["implementation"]): i for i in json.loads(capsys.readouterr().out)["implementations"]}
    assert set(listed) == {(name, i.name) for name in ops.names() for i in builtin.implementations(name)}
    assert listed["matmul", "triton"]["mode"] == "interpreted"
    assert listed["matmul", "cuda/tiled"]["mode"] == "emulated"
    assert listed["attention", "torch/cudnn"]["status"] == "unsupported"
    assert "needs an NVIDIA GPU" in listed["attention", "torch/cudnn"]["reason"]
    assert run(monkeypatch, "list", "--device", "cpu") == 0
    assert "cuda/tiled" in capsys.readouterr().out


def test_a_missing_framework_is_a_row_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "jax" else real(name, *rest))
    arguments = ["--op", "vector_add", "--shape", "N=100", "--impl", "jax", "--device", "cpu", "--json"]
    assert run(monkeypatch, "compare", *arguments, "--out", str(tmp_path)) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        assert row["status"] == "unavailable"
        assert "jax not installed: pip install" in row["reason"]


def test_doctor_runs_without_a_gpu_and_speaks_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "doctor") == 0
    assert "torch" in capsys.readouterr().out
    assert run(monkeypatch, "doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)


def test_a_terminal_gets_tables_and_a_marked_best_line(tmp_path: Path) -> None:
    """Run under a pseudo-terminal, as a person would."""
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
    command += ["--impl", "torch", "--impl", "numpy", "--device", "cpu", "--out", str(tmp_path)]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "200", "LINES": "50"}
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


def test_help_imports_no_framework_and_is_quick() -> None:
    code = "import sys; sys.argv = ['suite', '--help']\nfrom suite.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'jax', 'triton', 'numpy', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "compare" in done.stdout
    assert done.stderr.strip().splitlines()[-1] == "[]"

    def seconds(*arguments: str) -> float:
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            subprocess.run([sys.executable, *arguments], capture_output=True, cwd=ROOT, check=True)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert seconds("-m", "suite", "--help") < 3 * seconds("-c", "import typer, rich")
