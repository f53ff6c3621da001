"""Modules that are imported when they are first used."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from suite.core.lazy import import_when_used
from suite.core.paths import ROOT

Make = Callable[[str], ModuleType]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a package with that text, which can be imported when it is used."""
    package = tmp_path / "late_package"
    package.mkdir()
    (package / "part.py").write_text("from late_package import NAME\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> ModuleType:
        (package / "__init__.py").write_text(text, encoding="utf-8")
        for name in ("late_package", "late_package.part"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        import_when_used("late_package")
        return importlib.import_module("late_package")

    return write


def test_the_first_use_of_a_module_runs_it(make: Make) -> None:
    module = make("NAME = 'here'\n")
    assert "NAME" not in vars(module)
    assert module.NAME == "here"
    assert sys.modules["late_package"] is module
    assert not hasattr(module, "ELSE")


def test_no_garbage_is_collected_during_the_import(make: Make) -> None:
    assert make("import gc\nNAME = gc.isenabled()\n").NAME is False
    assert gc.isenabled()


def test_a_part_of_a_package_is_imported_after_the_package(make: Make) -> None:
    module = make("NAME = 'here'\n")
    assert importlib.import_module("late_package.part").NAME == "here"
    assert vars(module)["NAME"] == "here"


def test_a_module_that_fails_is_not_there(make: Make) -> None:
    module = make("raise ImportError('no luck')\n")
    for _ in range(2):
        with pytest.raises(ImportError, match="no luck"):
            _ = importlib.import_module("late_package").NAME
    assert sys.modules.get("late_package") is not module


def test_a_module_that_is_not_installed_stays_missing() -> None:
    import_when_used("no_such_module_anywhere")
    assert "no_such_module_anywhere" not in sys.modules


def test_a_command_that_runs_no_kernel_imports_no_torch() -> None:
    code = """import sys, runpy
sys.argv = ["suite", "list", "--device", "cpu"]
try: runpy.run_module("suite", run_name="__main__")
except SystemExit: pass
print("functional" in vars(sys.modules["torch"]), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "matmul" in done.stdout
    assert done.stderr.strip().splitlines()[-1] == "False"
