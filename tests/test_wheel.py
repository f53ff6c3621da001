"""The wheel, installed in an environment of its own, in a folder whose package is called `suite` too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import PathFinder  # finding pip by importlib.util makes setuptools fail later
from pathlib import Path

import pytest
from conftest import GPU

from suite import frameworks
from suite.core.paths import ROOT

pytestmark = [
    pytest.mark.slow(seconds=30),
    pytest.mark.skipif(
        any(PathFinder.find_spec(name) is None for name in ("pip", "setuptools")),
        reason="pip and setuptools build and install the wheel",
    ),
]
FOLDERS = ("kernel_suite", "suite", *(frameworks.get(name).folder for name in frameworks.names()))
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.py")
OWN = ("__editable__", "__pycache__", "kernel_suite", "distutils-precedence")
"""Beginnings of the names in site-packages that belong to this environment alone."""
MINE = """
import suite
assert suite.MINE
from kernel_suite.triton_kernels.sigmoid import sigmoid as of_triton
from kernel_suite.torch_impls.sigmoid import sigmoid as of_torch
framework = "{framework}"

def sigmoid(x):
    return of_{framework}(x)
"""
SMALL = ("--op", "sigmoid", "--shape", "N=1000", "--dtype", "float32", "--device", "cpu", "--no-time")
PROGRAM = """
import suite, sys, torch, kernel_suite
from kernel_suite.suite.core.errors import SuiteError
import kernel_suite.testing
assert suite.MINE
assert kernel_suite.check(torch.sigmoid, "sigmoid", (100,), device="cpu").agrees
assert not [name for name in sys.modules if name.split(".")[0] in FOLDERS[1:] and name != "suite"]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build writes into its folder."""
    source = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    out = source / "dist"
    how = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    _run(source, sys.executable, "-m", "pip", "wheel", *how, "--wheel-dir", out, source)
    (found,) = out.glob("*.whl")
    return found


def environment(folder: Path, wheel: Path, absent: tuple[str, ...] = ()) -> Path:
    """An environment with the wheel and the packages of this one, but for those named `absent`; its `bin/`."""
    _run(folder, sys.executable, "-m", "venv", "--without-pip", folder / "env")
    packages = folder / "packages"
    packages.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        name = each.name.partition("-")[0].partition(".")[0]
        if not each.name.startswith(OWN) and name not in absent:
            (packages / each.name).symlink_to(each)
    scripts = folder / "env" / "bin"
    (own,) = (folder / "env" / "lib").glob("python*/site-packages")
    (own / "packages.pth").write_text(f"{packages}\n")
    how = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    _run(folder, sys.executable, "-m", "pip", "--python", scripts / "python", "install", *how, wheel)
    return scripts


def _run(folder: Path, *command: str | Path) -> str:
    """The standard output of a command that succeeds."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    variables["XDG_DATA_HOME"] = str(folder)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a user, with a package `suite` and kernels that import it, beside the environment."""
    folder = tmp_path_factory.mktemp("home")
    environment(folder, wheel)
    (folder / "suite").mkdir()
    (folder / "suite" / "__init__.py").write_text("MINE = True\n")
    for name in ("torch", "triton"):
        (folder / f"my_{name}.py").write_text(MINE.format(framework=name))
    return folder


def test_the_wheel_takes_one_name(home: Path) -> None:
    (packages,) = (home / "env" / "lib").glob("python*/site-packages")
    found = {each.name for each in packages.iterdir()} - {"packages.pth"}
    assert {each for each in found if not each.endswith(".dist-info")} == {"kernel_suite"}
    _run(home, home / "env/bin/python", "-c", f"FOLDERS = {FOLDERS}{PROGRAM}")


@pytest.mark.thorough
@pytest.mark.skipif(bool(GPU), reason="the file's Triton kernel is interpreted")
def test_the_commands_run_beside_another_suite(home: Path) -> None:
    python, command = home / "env/bin/python", home / "env/bin/kernel-suite"
    mine = ("--with", "my_torch.py", "--with", "my_triton.py")
    built_in = [word for name in ("triton", "jax", "cuda", "torch") for word in ("--impl", name)]
    small = (*SMALL, *built_in, *mine)
    document = _run(home, python, "-m", "kernel_suite", "compare", *small, "--out", "before", "--json")
    rows = {row["implementation"]: row for row in json.loads(document)["rows"]}
    ran = {name for name, row in rows.items() if row["status"] == "ok"}
    assert {"triton", "jax", "torch", "with/my_torch", "with/my_triton"} <= ran
    assert not [row["reason"] for row in rows.values() if row["status"] in ("error", "wrong")]
    recorded = json.loads((home / "before" / "environment.json").read_text(encoding="utf-8"))
    assert recorded["command"].startswith("python -m kernel_suite compare --op sigmoid")
    _run(home, command, "compare", *SMALL, "--impl", "torch", "--out", "after")
    assert "sigmoid N=1000" in _run(home, command, "diff", "before", "after")
    _run(home, command, "report", "before")
    assert (home / "before" / "report.html").is_file()
    assert "triton/fast_exponential" in _run(home, command, "list", "sigmoid")


@pytest.mark.thorough
def test_a_missing_framework_is_unavailable_with_the_command_that_installs_it(wheel: Path, tmp_path: Path) -> None:
    absent = ("jax", "jaxlib", "triton", "ninja")
    scripts = environment(tmp_path, wheel, absent)
    chosen = [word for name in ("triton", "jax", "cuda", "torch", "numpy") for word in ("--impl", name)]
    document = _run(tmp_path, scripts / "kernel-suite", "compare", *SMALL, *chosen, "--out", "out", "--json")
    rows = {row["implementation"]: (row["status"], row["reason"]) for row in json.loads(document)["rows"]}
    torch = "pip install 'kernel-suite[torch]'"
    assert rows["triton"] == ("unavailable", f"triton not installed: {torch}")
    assert rows["cuda"] == ("unavailable", f"ninja not installed: {torch}")
    assert rows["jax"] == ("unavailable", "jax, jaxlib not installed: pip install 'kernel-suite[jax]'")
    assert rows["torch"][0] == rows["numpy"][0] == "ok"
