"""`list`, `doctor`, `--help`: their output, and the speed of help."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest
from commands import call
from quick import cpu_s
from tries import passes_once

from cuda_ref.build import rewrite
from suite import ops
from suite.core.paths import ROOT
from suite.implementations import builtin


def test_list_names_every_implementation_of_every_operation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "list", "--device", "cpu", "--json") == 0
    listed = {(i["operation"], i["implementation"]): i for i in json.loads(capsys.readouterr().out)["implementations"]}
    assert set(listed) == {(name, i.name) for name in ops.names() for i in builtin.implementations(name)}
    assert all((ROOT / each["file"]).is_file() for each in listed.values())
    assert listed["matmul", "triton"]["mode"] == "interpreted"
    assert listed["matmul", "cuda/tiled"]["mode"] == "emulated"
    assert listed["attention", "torch/cudnn"]["status"] == "unsupported"
    assert "needs an NVIDIA GPU" in listed["attention", "torch/cudnn"]["reason"]
    assert call(monkeypatch, "list", "--device", "cpu") == 0
    assert "cuda/tiled" in capsys.readouterr().out


def test_list_takes_operations_by_name_and_pattern(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"sum", "matmul", "matrix_add"}
    for given in (
        ["sum", "mat*[dl]"],
        ["sum,mat*[dl]"],
        ["sum", "--op", "mat*[dl]"],
        ["--op", "sum,matmul", "--op", "matrix_add"],
    ):
        assert call(monkeypatch, "list", *given, "--device", "cpu", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert {entry["operation"] for entry in found["implementations"]} == named
        assert set(found["inputs"]) == set(found["telling"]) == named
    assert call(monkeypatch, "list", "sum", "--device", "cpu") == 0
    text = capsys.readouterr().out
    assert "cuda/atomics" in text
    assert "matmul" not in text
    assert "(sum)" in text, "its telling cases"


def test_list_of_a_named_operation_has_the_signatures_of_your_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "list", "--device", "cpu", "--json") == 0
    signatures = json.loads(capsys.readouterr().out)["signatures"]
    assert set(signatures) == set(ops.names())
    for name, each in signatures.items():
        assert call(monkeypatch, "list", name, "--device", "cpu") == 0
        text = " ".join(capsys.readouterr().out.split())
        assert f"--with .py: {each['.py']}" in text
        assert ast.parse(f"def {each['.py']}: ...")
        source = ROOT / "cuda_ref" / name / f"{name}.cu"
        assert (f"--with .cu: {each['.cu']}" in text) == bool(each[".cu"]) == source.is_file()
        if each[".cu"]:
            assert rewrite.parameters(each[".cu"], name) == rewrite.parameters(source.read_text("utf-8"), name)
    assert call(monkeypatch, "list", "--device", "cpu") == 0
    assert "--with .py" not in capsys.readouterr().out


def test_list_groups_operations_and_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(map(ops.group, ops.names())) <= set(ops.GROUPS)
    monkeypatch.setenv("COLUMNS", "80")
    assert call(monkeypatch, "list", "--device", "cpu") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    groups, overview = ops.by_group(ops.names()), lines.index("")
    assert [line.partition(":")[0] for line in lines[:overview] if line.partition(":")[0] in groups] == list(groups)
    shown = [line.partition(":")[0] for line in lines[overview:] if line.partition(":")[0] in ops.names()]
    assert shown == [name for names in groups.values() for name in names]


def test_list_refuses_an_unknown_operation_and_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "list", "sum", "softmaxx") == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "unknown operation 'softmaxx'; did you mean softmax? `" in text
    assert text.endswith(" list` shows all")


def test_doctor_runs_without_a_gpu_and_speaks_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "doctor") == 0
    assert "torch" in capsys.readouterr().out
    assert call(monkeypatch, "doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)


COMMANDS = ("compare", "tune", "list", "diff", "report", "history", "shapes", "doctor", "new-op")
PANELS = ("Options", "What to compare", "Sizes and inputs", "Measuring", "Looking inside", "Output", "Resume")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("command", COMMANDS)
def test_help_cuts_nothing_in_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, "--help") == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


@pytest.mark.usefixtures("narrow")
def test_help_of_compare_has_panels_and_first_the_options_that_everybody_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", "--help") == 0
    text = capsys.readouterr().out
    titles = re.findall(r"^╭─ (.*?) ─", text, re.MULTILINE)
    assert tuple(titles) == ("Arguments", *PANELS)
    flags = {part.partition(" ─")[0]: re.findall(r"^│ (--[a-z-]+)", part, re.MULTILINE) for part in text.split("╭─ ")}
    first = {"--op", "--impl", "--with", "--dtype", "--shape", "--inputs", "--device", "--no-time", "--out", "--quiet"}
    assert set(flags["Options"]) == first | {"--help"}
    assert {"--layout", "--causal", "--axis"} <= set(flags["Sizes and inputs"]), "options that operations declare"
    assert len([flag for panel in PANELS for flag in flags[panel]]) > 40


def test_help_imports_no_framework_and_is_quick() -> None:
    code = "import sys; sys.argv = ['suite', '--help']\nfrom suite.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'jax', 'triton', 'numpy', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "compare" in done.stdout
    assert done.stderr.strip().splitlines()[-1] == "[]"

    def seconds(*arguments: str) -> float:
        begin = cpu_s()
        subprocess.run([sys.executable, *arguments], capture_output=True, cwd=ROOT, check=True)
        return cpu_s() - begin

    def quick(_: int) -> None:
        assert seconds("-m", "suite", "--help") < 4 * seconds("-c", "import typer.rich_utils")

    passes_once(quick, range(5))
