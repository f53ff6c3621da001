"""docs/own_kernels.md and docs/first_kernel.md: `list` prints their signatures, their kernels run as they say."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import call
from external_files import CPU, check, external, status, write

import suite
from cuda_ref.build.compiler import missing
from suite import ops
from suite.core.paths import ROOT
from suite.worker.pool import Pool

FIRST, DOCUMENT = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("first_kernel.md", "own_kernels.md"))
TEMPLATES, _, RULES = DOCUMENT.partition("## A .py file")
RULES, _, PUBLIC = RULES.partition("## Public kernels")


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_printed_signatures_are_those_of_the_tree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = re.findall(r"--with \.(?:py|cu): [^`]+", RULES)
    assert len(printed) == 2
    assert call(monkeypatch, "list", "matmul", "sigmoid", "--device", "cpu") == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert not [each for each in printed if " ".join(each.split()) not in listed]


@pytest.mark.skipif(missing("cpu") is not None, reason="needs a C++ compiler")
def test_the_kernels_of_the_documents_are_what_they_say(tmp_path: Path) -> None:
    naive, mended = blocks("python", FIRST)
    (triton_file,), (cuda_file,) = blocks("python", TEMPLATES), blocks("cuda", TEMPLATES)
    assert external(write(tmp_path / "my_sigmoid.py", ""), "sigmoid").fault in FIRST
    files = {"n.py": naive, "s.py": mended, "t.py": triton_file, "c.cu": cuda_file}
    case = ops.get("sigmoid").case((5000,), "float16")
    with Pool(CPU) as pool:
        found = {
            name: status(check(pool, external(write(tmp_path / name, each), "sigmoid"), case))
            for name, each in files.items()
        }
    assert found == {"n.py": "wrong", "s.py": "ok", "t.py": "ok", "c.cu": "ok"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="the printed result is that of a CPU")
def test_the_printed_reason_is_that_of_the_naive_kernel() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python", FIRST)[0], names)
    found = suite.check(names["sigmoid"], "sigmoid", (1_000_000,), dtype="float16", device="cpu")
    assert found.reason in " ".join(FIRST.split())
    assert f" {found.error_ratio:.3g}  1\n" in FIRST


def test_the_lines_for_public_kernels_are_few() -> None:
    python, cuda = blocks("python", PUBLIC), blocks("cuda", PUBLIC)
    assert len(python) + len(cuda) == PUBLIC.count("```") / 2
    assert all(len([line for line in each.splitlines() if line.strip()]) <= 5 for each in python)
    assert all(each.count(";") <= 9 for each in cuda)
    for each in python:
        ast.parse(each)


def test_the_documents_say_that_the_file_runs_with_the_users_rights() -> None:
    for text in (DOCUMENT, (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(r"`--with` runs your code with your permissions", text)
