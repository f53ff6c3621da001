"""new-op: the names that it refuses, the files that it writes, and their style."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from suite import frameworks, ops
from suite.cli.main import app
from suite.core.errors import ResultsError, UsageError
from suite.core.paths import ROOT
from suite.new_op.skeletons import KINDS, check_name, render, write

RUFF = Path(sys.executable).with_name("ruff")
REFUSED = {
    "an existing operation": ("matmul", "this operation exists"),
    "all": ("all", "--op all means every operation"),
    "a keyword": ("lambda", "no Python keyword"),
    "upper case": ("Softmax", "lower case letters"),
    "a dash": ("row-sum", "lower case letters"),
    "a leading digit": ("2x", "lower case letters"),
    "a leading underscore": ("_x", "lower case letters"),
    "empty": ("", "lower case letters"),
    "a path": ("../x", "lower case letters"),
    "a function of the C library": ("exp", "choose another, such as exp_op"),
}


@pytest.mark.parametrize(("name", "complaint"), REFUSED.values(), ids=REFUSED)
def test_a_name_that_cannot_be_used_is_refused(name: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        write(name, KINDS[0], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["torch", "x", "build"])
def test_a_name_that_the_skeletons_use_themselves_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="variable or module of that name"):
        write(name, "elementwise", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["softmin", "product", "l2_norm", "conv1d"])
def test_usual_names_are_accepted(name: str) -> None:
    check_name(name)
    for kind in KINDS:
        assert render(name, kind)


def test_an_unknown_kind_names_the_kinds() -> None:
    with pytest.raises(UsageError, match=r"--kind: unknown 'scan'; valid are elementwise, rowwise"):
        render("softmin", "scan")


@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_and_a_file_for_every_framework_are_written(kind: str, tmp_path: Path) -> None:
    files = write("scale", kind, tmp_path)
    assert [str(path) for path in files] == [
        "suite/ops/scale.py",
        "triton_kernels/scale/__init__.py",
        "jax_impls/scale.py",
        "cuda_ref/scale/scale.cu",
        "cuda_ref/scale/__init__.py",
        "torch_impls/scale.py",
        "numpy_impls/scale.py",
    ]
    for path in files:
        text = (tmp_path / path).read_text(encoding="utf-8")
        assert "$" not in text
        if path.suffix == ".py":
            names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            assert ("Scale" if path.parent.name == "ops" else "scale") in names
    rank = next(line for line in (tmp_path / files[0]).read_text(encoding="utf-8").splitlines() if "rank =" in line)
    assert int(rank.split("=")[1]) > max(ops.rank(name) for name in ops.names())


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("numpy_impls/scale.py", r"numpy_impls/scale\.py"),
        ("numpy_impls/scale/__init__.py", "numpy_impls/scale"),
        ("triton_kernels/scale.py", r"triton_kernels/scale\.py"),
        ("cuda_ref/scale/scale.cu", "cuda_ref/scale"),
    ],
)
def test_a_file_or_folder_that_exists_is_kept_and_nothing_is_written(
    place: str, complaint: str, tmp_path: Path
) -> None:
    mine = tmp_path / place
    mine.parent.mkdir(parents=True)
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"new-op 'scale': {complaint} exists already"):
        write("scale", "rowwise", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text(encoding="utf-8") == "mine"


def test_where_one_file_cannot_be_written_none_is(tmp_path: Path) -> None:
    (tmp_path / "numpy_impls").write_text("a file, not a folder", encoding="utf-8")
    with pytest.raises(ResultsError, match="cannot write"):
        write("scale", "rowwise", tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["numpy_impls"]
    assert not list(tmp_path.rglob("scale")), "an empty folder would be in the way of the next attempt"


def test_the_command_refuses_with_exit_status_2_and_writes_nothing() -> None:
    found = CliRunner().invoke(app, ["new-op", "matmul"])
    assert isinstance(found.exception, UsageError)
    help_text = CliRunner().invoke(app, ["new-op", "--help"]).output
    assert all(kind in help_text for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_is_long_where_the_name_is(kind: str) -> None:
    texts = render("cross_head_attention", kind)
    assert [line for text in texts.values() for line in text.splitlines() if len(line) > 120] == []


@pytest.mark.skipif(not RUFF.exists(), reason="needs ruff beside Python")
@pytest.mark.parametrize("kind", KINDS)
def test_the_skeletons_are_in_the_style_of_the_tree(kind: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("suite/ops", *(frameworks.get(name).folder for name in frameworks.names())):
        (tmp_path / folder).mkdir(parents=True)
        for package in (tmp_path / folder, (tmp_path / folder).parent):
            if package != tmp_path:
                (package / "__init__.py").touch()
    files = [tmp_path / path for path in write("softmin", kind, tmp_path)]
    sources = [str(path.relative_to(tmp_path)) for path in files if path.suffix == ".py"]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([RUFF, *command, *sources], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
