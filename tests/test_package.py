"""The package `kernel_suite`: another name for the modules of a checkout, and imports that the build changes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import setup_script

from kernel_suite import _checkout
from suite import frameworks
from suite.core.paths import ROOT

ONE_OBJECT = """
import kernel_suite.triton_kernels.matmul, kernel_suite.suite.core.errors, kernel_suite.testing
import suite.core.errors, suite.testing, triton_kernels.matmul
from kernel_suite.suite.problem.case import Case
assert kernel_suite.triton_kernels.matmul is triton_kernels.matmul
assert kernel_suite.suite.core.errors is suite.core.errors
assert kernel_suite.testing is suite.testing
assert kernel_suite.compare is suite.compare and "compare" in dir(kernel_suite)
assert suite.core.errors.__spec__.name == "suite.core.errors"
assert Case.__module__ == "suite.problem.case"
assert not [name for name in sys.modules if name.startswith("kernel_suite.") and name.count(".") > 1
            and sys.modules[name] is not sys.modules[name.removeprefix("kernel_suite.")]]
"""


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    return setup_script.load()


@pytest.fixture
def beside_another_suite(tmp_path: Path) -> Path:
    """A folder with a package `suite` and a module `torch` of the user's."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "torch.py").write_text("raise RuntimeError('not PyTorch')\n")
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_both_names_are_one_module(tmp_path: Path) -> None:
    done = python(tmp_path, "-W", "error::ImportWarning", "-c", f"import sys{ONE_OBJECT}")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_runs_in_a_folder_that_has_a_suite_of_its_own(beside_another_suite: Path) -> None:
    done = python(beside_another_suite, "-m", "kernel_suite", "list", "sigmoid")
    assert done.returncode == 0, done.stderr
    assert "triton/fast_exponential" in done.stdout


def test_a_checkout_does_not_take_the_name_of_an_imported_module(beside_another_suite: Path) -> None:
    program = "import sys; sys.path.insert(0, ''); import suite; assert suite.MINE; import kernel_suite"
    done = python(beside_another_suite, "-c", program)
    assert done.returncode == 1
    assert f"install it instead: pip install {ROOT}" in done.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from suite import ops\n", "from kernel_suite.suite import ops\n"),
        ("from suite.core.paths import ROOT as R\n", "from kernel_suite.suite.core.paths import ROOT as R\n"),
        ("def f():\n    from cuda_ref import build\n", "def f():\n    from kernel_suite.cuda_ref import build\n"),
        ("x = 1; from suite import (\n    ops,\n)\n", "x = 1; from kernel_suite.suite import (\n    ops,\n)\n"),
        ('"""é"""; from suite import ops\n', '"""é"""; from kernel_suite.suite import ops\n'),
        ("from kernel_suite.suite import ops\n", "from kernel_suite.suite import ops\n"),
        ("from suites import x\nfrom .suite import x\n", "from suites import x\nfrom .suite import x\n"),
        ('"""\nfrom suite import x\n"""\n', '"""\nfrom suite import x\n"""\n'),
        ("x = '\\x0c'\n\x0cfrom suite import ops", "x = '\\x0c'\n\x0cfrom kernel_suite.suite import ops"),
    ],
)
def test_the_build_puts_the_package_before_the_names_of_the_folders(
    source: str, expected: str, setup: ModuleType
) -> None:
    assert setup.with_package(source) == expected


@pytest.mark.parametrize("source", ["import suite\n", "import os, cuda_ref.build\n", "from suite \\\n  import ops\n"])
def test_the_build_refuses_imports_that_it_cannot_change(source: str, setup: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"line 1: write `from (suite|os|cuda_ref)"):
        setup.with_package(source)


@pytest.mark.thorough  # test_wheel.py builds them
def test_every_file_can_be_built(setup: ModuleType) -> None:
    for path in (each for name in (*setup.FOLDERS, setup.PACKAGE) for each in (ROOT / name).rglob("*.py")):
        built = setup.with_package(path.read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(ast.parse(built)) if isinstance(node, ast.ImportFrom) and not node.level]
        assert not [node.lineno for node in nodes if (node.module or "").split(".")[0] in setup.FOLDERS], path


def test_the_folders_are_those_of_the_suite_and_of_the_frameworks(setup: ModuleType) -> None:
    expected = {"suite", *(frameworks.get(name).folder for name in frameworks.names())}
    assert set(setup.FOLDERS) == _checkout.FOLDERS == expected
