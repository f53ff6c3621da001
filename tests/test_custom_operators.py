"""The examples of custom operators run, and their results and gradients are those of the frameworks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_ref.build import compiler
from suite.core.paths import ROOT

FOLDER = ROOT / "examples" / "custom_operators"


def lines(name: str, folder: Path) -> dict[str, str]:
    """The output of the example: the text after each colon, by the text before it."""
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder), "CXX": compiler.cxx() or "c++"}
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {before.strip(): after.strip() for before, _, after in (x.partition(":") for x in done.stdout.splitlines())}


@pytest.mark.slow(seconds=60)
@pytest.mark.skipif(compiler.cxx() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("name", "claims"),
    [
        pytest.param("torch_library", {"result equal", "gradient equal", "compiled equal"}, marks=pytest.mark.thorough),
        ("jax_ffi", {"result equal", "in a program", "for each row"}),
    ],
)
def test_a_custom_operator_is_right(name: str, claims: set[str], tmp_path: Path) -> None:
    assert lines(name, tmp_path) == dict.fromkeys(claims, "True")


@pytest.mark.slow(seconds=180)
@pytest.mark.thorough
@pytest.mark.skipif(compiler.cxx() is None, reason="needs a C++ compiler")
@pytest.mark.skipif(importlib.util.find_spec("ninja") is None, reason="needs ninja")
def test_an_extension_in_cpp_is_right_and_refuses_other_types(tmp_path: Path) -> None:
    found = lines("cpp_extension", tmp_path)
    assert found["result equal"] == "True"
    assert found["refused"] == "silu: x must be float32; got Double"
