"""The program that runs compute-sanitizer: the evaluation of its output, and a run on a machine that has it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from suite import hardware, ops
from validation import sanitize
from validation.sanitize import FURTHER, SUMMARY, TOOLS, cases, chosen, judge, main, markdown, sanitizer
from validation.sanitizer import limits

CLEAN = "calls made: 42\n========= ERROR SUMMARY: 0 errors\n"
BAD = (
    "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\ncalls made: 42\n"
    "========= ERROR SUMMARY: 3 errors\n"
)
RACE = "calls made: 7\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


@pytest.mark.parametrize(
    ("output", "ended", "passed", "errors", "note"),
    [
        (CLEAN, 0, True, 0, ""),
        (RACE, 0, True, 0, ""),
        (BAD, 1, False, 3, "Invalid __global__ read of size 4 bytes"),
        (RACE.replace("0 hazards", "2 hazards"), 1, False, 2, ""),
        (CLEAN.replace("42", "0"), 0, False, 0, ""),
        ("========= ERROR SUMMARY: 0 errors\n", 1, False, None, "ended with 1"),
        ("Segmentation fault\n", -11, False, None, "ended with -11: Segmentation fault"),
        ("", None, False, None, "not finished in the time given"),
    ],
    ids=["clean", "no race", "out of bounds", "race", "no calls", "died before the end", "died", "too long"],
)
def test_a_row_passes_only_without_errors(
    output: str, ended: int | None, passed: bool, errors: int | None, note: str
) -> None:
    row = judge("memcheck", "matmul", ["cuda"], output, ended)
    assert (row.passed, row.errors) == (passed, errors)
    assert note in row.note
    assert "| memcheck" in markdown([row], {"command": "c", "device": {"name": "GPU"}}, "Version 1")


def test_every_operation_has_cuda_kernels_and_ragged_cases() -> None:
    assert SUMMARY.search(CLEAN)
    for name in ops.alone():
        assert chosen(name, ["cuda", "cuda/*"])[0].name == "cuda"
        op = ops.get(name)
        assert {case.dtype for case in cases(name)} == {*op.dtypes, *op.dtypes_beyond}
    assert all({case.shape for case in cases(name)} >= set(shapes) for name, shapes in FURTHER.items())


def test_the_whole_program_with_a_shell_script_as_sanitizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script reports two errors for racecheck and none for the other tools."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(
        """#!/bin/sh
case "$*" in *--version) echo "Version 1"; exit;; *racecheck*) n=2;; *) n=0;; esac
echo "calls made: 5"
echo "========= ERROR SUMMARY: $n errors"
""",
        encoding="utf-8",
    )
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(
        hardware, "environment_record", lambda *_: {"command": "sanitize.py", "device": {"name": "a device"}}
    )
    built: list[str] = []
    monkeypatch.setattr(sanitize, "build_first", lambda operation, *_: built.append(operation))
    out = tmp_path / "out"
    given = ["--op", "sigmoid", "--op", "matmul", "--impl", "cuda,cuda/vectorized,cuda/mma"]
    assert main([*given, "--jobs", "3", "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "OFF racecheck matmul: 2 errors in 5 calls of cuda, cuda/mma" in printed
    assert "8 rows: 6 clean, 40 calls" in printed
    rows = json.loads((out / "sanitizer.json").read_text(encoding="utf-8"))
    assert [(row["operation"], row["tool"]) for row in rows] == [
        (operation, tool) for operation in ("sigmoid", "matmul") for tool in TOOLS
    ]
    assert sorted(built) == ["matmul", "sigmoid"]
    kept = {path.name: path.read_text(encoding="utf-8") for path in out.glob("*.txt")}
    assert set(kept) == {"racecheck-matmul.txt", "racecheck-sigmoid.txt"}
    assert "2 errors" in kept["racecheck-matmul.txt"]


def test_a_pattern_without_an_implementation_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--op", "sigmoid", "--impl", "cuda/fastest"])
    assert "--impl cuda/fastest: no implementation of these operations has such a name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("errors", "shown"),
    [
        ({"bulk_store": 128, "bulk_add": 128, "plain": 0, "unwritten": 128}, True),
        ({"bulk_store": 0, "bulk_add": 0, "plain": 0, "unwritten": 128}, False),
        ({"bulk_store": 128, "bulk_add": 128, "plain": 128, "unwritten": 128}, False),
        ({"bulk_store": 128, "bulk_add": 128, "plain": 0, "unwritten": 0}, False),
        ({"bulk_store": 128, "bulk_add": None, "plain": 0, "unwritten": 128}, False),
    ],
    ids=["not followed", "followed", "reports what is right", "misses what is wrong", "a case without a count"],
)
def test_reports_are_left_out_only_if_the_probe_shows_them_to_be_none(
    errors: dict[str, int | None], shown: bool
) -> None:
    found = limits.left_out("initcheck", "attention_grad", "compute-sanitizer", lambda *_: errors)
    assert bool(found) == shown
    assert all("bulk_add of sanitizer/probe.cu" in each.note() for each in found)
    assert not limits.left_out("memcheck", "attention_grad", "compute-sanitizer", lambda *_: errors)


@pytest.mark.parametrize("known", [each for each in limits.KNOWN if each.source], ids=lambda known: known.source)
def test_a_changed_source_has_every_change(tmp_path: Path, known: limits.Known) -> None:
    text = known.changed(tmp_path).read_text(encoding="utf-8")
    assert all(new in text for _, new in known.replaced)
    with pytest.raises(ValueError, match="must have this text once"):
        replace(known, replaced=(("no such text", ""),)).changed(tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(sanitizer() is None, reason="compute-sanitizer is not installed: it comes with the CUDA toolkit")
def test_the_sigmoid_is_clean(tmp_path: Path) -> None:
    assert main(["--op", "sigmoid", "--tool", "memcheck", "--out", str(tmp_path)]) == 0
