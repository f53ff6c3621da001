"""docs/own_kernels.md and docs/first_kernel.md: signatures are those of the tree, and their kernels run as they say."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from external_files import CPU, check, external, status, write

import suite
from cuda_ref.build import rewrite as _rewrite
from cuda_ref.build.compiler import missing
from suite import ops
from suite.core.paths import ROOT
from suite.external.implementation import signature
from suite.worker.pool import Pool
from validation import readme_table

FIRST, DOCUMENT = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("first_kernel.md", "own_kernels.md"))
TEMPLATES, _, RULES = DOCUMENT.partition("## A .py file")
RULES, _, PUBLIC = RULES.partition("## Public kernels")


PUBLISHED = {case[0] for case in readme_table.CASES}
"""Operations of the README's table. A new operation may be documented later."""


def source_of(operation: str) -> Path:
    """The plain CUDA kernel of an operation; `multi_head_attention` has none."""
    return ROOT / "cuda_ref" / operation / f"{operation}.cu"


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def fenced(language: str) -> str:
    return "\n".join(blocks(language, RULES))


def normal(signature: str) -> str:
    return " ".join(signature.split()).replace("( ", "(")


def test_the_documented_launchers_are_those_of_the_tree() -> None:
    documented = fenced("cuda")
    launchers = set(_rewrite.launchers(documented))
    assert launchers <= set(ops.names())
    assert launchers >= {name for name in PUBLISHED if source_of(name).exists()}
    for name in launchers:
        source = source_of(name).read_text(encoding="utf-8")
        ours, theirs = (re.search(rf'extern "C" int {name}\(([^)]*)\)', text) for text in (source, documented))
        assert ours is not None
        assert theirs is not None
        assert normal(theirs[1]) == normal(ours[1])
        assert _rewrite.parameters(documented, name) == _rewrite.parameters(source, name)


def test_the_documented_functions_are_those_of_the_tree() -> None:
    documented = {line.partition("(")[0]: line for line in fenced("python").splitlines() if line}
    assert set(ops.names()) >= set(documented) >= PUBLISHED
    for name, line in documented.items():
        assert ast.dump(ast.parse(line.replace("*, ", ""))) == ast.dump(
            ast.parse(signature(ops.get(name)).replace("*, ", ""))
        )


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
        assert re.search(r"`--with` runs your code with your rights", text)
