"""Adding an implementation, an operation or a framework takes only its files, as CONTRIBUTING.md says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suite import frameworks
from suite.core.paths import ROOT
from suite.numerics.formats import DTYPES

PACKAGES = ("suite", *(frameworks.get(name).folder for name in frameworks.names()))

ADAPTER = '''
"""Plain Python lists."""
import torch
from suite.frameworks.base import Adapter


class Lists(Adapter):
    name = "lists"
    folder = "list_impls"
    packages = ()
    devices = ("cpu",)

    def to_native(self, tensor):
        return tensor.tolist()

    def to_torch(self, array):
        return torch.tensor(array)

    def wait(self, result):
        pass


ADAPTER = Lists()
'''


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages and of the tests, to add files to."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run(checkout: Path, *arguments: str) -> str:
    """The standard output of `python ARGUMENTS` in the copy, on the CPU."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "SUITE_TEST_GPU": "", "COLUMNS": "200"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def statuses(checkout: Path, *arguments: str) -> dict[tuple[str, str, str], set[str]]:
    """The statuses of `compare` on the CPU in the copy, by (operation, implementation, dtype)."""
    document = run(checkout, "-m", "suite", "compare", *arguments, "--device", "cpu", "--no-time", "--json")
    found: dict[tuple[str, str, str], set[str]] = {}
    for row in json.loads(document)["rows"]:
        found.setdefault((row["operation"], row["implementation"], row["dtype"]), set()).add(row["status"])
    return found


def skeletons(checkout: Path, kinds: dict[str, str]) -> None:
    """Write the files of new operations of these kinds."""
    for name, kind in kinds.items():
        written = run(checkout, "-m", "suite", "new-op", name, "--kind", kind).split("\n\n")[0].splitlines()
        assert all((checkout / path).is_file() for path in written)


@pytest.mark.slow(seconds=10)
def test_an_implementation_a_framework_and_an_operation_are_their_files(checkout: Path) -> None:
    """Each is there after its files are written; one run compares them all."""
    folder = checkout / "triton_kernels" / "vector_add"
    (folder / "mine.py").write_text((folder / "__init__.py").read_text(encoding="utf-8"), encoding="utf-8")
    (checkout / "suite" / "frameworks" / "lists.py").write_text(ADAPTER, encoding="utf-8")
    (checkout / "list_impls").mkdir()
    (checkout / "list_impls" / "vector_add.py").write_text(
        "def vector_add(a, b):\n    return [x + y for x, y in zip(a, b)]\n", encoding="utf-8"
    )
    skeletons(checkout, {"softmin": "rowwise"})
    chosen = [word for name in ("triton/mine", "lists", *frameworks.names()) for word in ("--impl", name)]
    found = statuses(checkout, "--op", "vector_add,softmin", *chosen, "--dtype", "float32")
    names = {"vector_add": ["triton/mine", "lists"], "softmin": []}
    assert found == {
        (op, name, "float32"): {"ok"} for op, more in names.items() for name in (*frameworks.names(), *more)
    }


@pytest.mark.thorough
def test_an_operation_that_is_one_file_becomes_a_folder_for_its_variants(checkout: Path) -> None:
    plain = checkout / "numpy_impls" / "vector_add.py"
    folder = plain.with_suffix("")
    folder.mkdir()
    plain = plain.rename(folder / "__init__.py")
    (folder / "mine.py").write_text(plain.read_text(encoding="utf-8"), encoding="utf-8")
    found = statuses(checkout, "--op", "vector_add", "--impl", "numpy*", "--shape", "N=1000")
    assert found == {("vector_add", name, dtype): {"ok"} for name in ("numpy", "numpy/mine") for dtype in DTYPES}


@pytest.mark.slow(seconds=15)
@pytest.mark.thorough
def test_the_skeletons_of_operations_agree(checkout: Path) -> None:
    kinds = {"scale": "elementwise", "least": "rowwise"}
    skeletons(checkout, kinds)
    found = statuses(checkout, "--op", ",".join(kinds), "--impl", ",".join(frameworks.names()))
    assert found == {(name, each, dtype): {"ok"} for name in kinds for each in frameworks.names() for dtype in DTYPES}


@pytest.mark.slow(seconds=25)
@pytest.mark.thorough
def test_the_skeletons_of_operations_pass_the_parity_tests(checkout: Path) -> None:
    kinds = {"halve": "elementwise", "softmin2": "rowwise"}
    skeletons(checkout, kinds)
    some = f"({' or '.join(kinds)}) and float32 and (sizes or nan)"
    parity = ("tests/parity/test_parity.py", "-m", "", "-k", some)
    passed = run(checkout, "-m", "pytest", "-v", "-p", "no:cacheprovider", *parity)
    assert "failed" not in passed
    for name in kinds:
        assert re.search(rf"\[{name}-sizes-float32-triton(-more)?\] PASSED", passed), passed


@pytest.mark.slow(seconds=25)
@pytest.mark.thorough  # skeletons agree, above, which needs most of what they declare
def test_the_declarations_of_skeletons_pass_the_tests_of_every_operation(checkout: Path) -> None:
    kinds = {"twice": "elementwise", "row_weights": "rowwise"}
    skeletons(checkout, kinds)
    declared = ("tests/problem/test_telling_set.py", "tests/ops/test_every_operation.py", "-k", " or ".join(kinds))
    passed = run(checkout, "-m", "pytest", "-v", "-p", "no:cacheprovider", *declared)
    for name in kinds:
        assert len(re.findall(rf"\[{name}\S*\] PASSED", passed)) > 10, passed
