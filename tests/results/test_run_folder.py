"""The folder of a run, and the link to the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import PLAIN, call

from suite.core import paths
from suite.hardware.device import Device
from suite.results import run_folder
from suite.results.row import Row


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first = run_folder.new(tmp_path, ["matmul"])
    assert first.parent == tmp_path / "runs"
    assert first.name.endswith("-matmul")
    assert not tmp_path.joinpath("runs").exists(), "nothing is written before the first row"
    first.mkdir(parents=True)
    assert run_folder.new(tmp_path, ["matmul"]) != first
    assert run_folder.new(tmp_path, ["a", "b"]).name.endswith("-a+b")
    assert run_folder.new(tmp_path, list("abcde")).name.endswith("-5-operations")


def test_the_last_run_of_the_same_operations_is_resumed(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("2026-01-01T000000-matmul", "2026-01-02T000000-matmul.2", "2026-01-03T000000-sigmoid"):
        (runs / name).mkdir(parents=True)
    assert run_folder.last_or_new(tmp_path, ["matmul"]) == runs / "2026-01-02T000000-matmul.2"
    assert run_folder.last_or_new(tmp_path, ["attention"]).name.endswith("-attention")
    assert not run_folder.last_or_new(tmp_path, ["attention"]).exists()


def test_latest_names_the_last_run_and_nothing_else_is_linked(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        run_folder.set_latest(tmp_path / "runs" / name)
        assert (tmp_path / "latest").resolve() == tmp_path / "runs" / name
    run_folder.set_latest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "runs"]


@pytest.fixture
def one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the run by a function that stores one row with samples in the folder of the command."""

    def run(jobs: Any, options: Any, observer: Any, finished: Any) -> list[Row]:
        observer.store(jobs[0].op, [Row("vector_add", "N=64", "float32", "ieee", "torch", sample_us=(1.0,))])
        return []

    monkeypatch.setattr("suite.runner.compare.compare", run)


@pytest.mark.usefixtures("one_row")
def test_the_working_directory_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kernel-suite compare` in any folder writes below the folder of results."""
    tree, here = tmp_path / "tree", tmp_path / "here"
    here.mkdir()
    tree.mkdir()
    (tree / "pyproject.toml").touch()
    monkeypatch.setattr(paths, "ROOT", tree)
    monkeypatch.chdir(here)
    assert call(monkeypatch, "compare", *PLAIN) == 0
    assert len(list(tree.glob("results/cpu-*/latest/vector_add.csv"))) == 1
    assert list(here.iterdir()) == []


@pytest.mark.usefixtures("one_row")
def test_a_plain_run_leaves_the_published_tables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Device, "results_folder", property(lambda self: tmp_path))
    assert call(monkeypatch, "compare", *PLAIN) == 0
    assert not (tmp_path / "vector_add.csv").exists()
    assert (tmp_path / "latest" / "vector_add.csv").exists()
    assert call(monkeypatch, "compare", *PLAIN, "--publish") == 0
    assert (tmp_path / "vector_add.csv").exists()
    assert [path.parent.parent.name for path in tmp_path.rglob("*.npz")] == ["runs"]
    assert call(monkeypatch, "compare", *PLAIN, "--publish", "--out", tmp_path) == 2
    assert "give one of the two" in capsys.readouterr().err
