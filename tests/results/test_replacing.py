"""A run replaces no file that it did not write: tables of another run, files of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import SMALL, call

from suite.core.errors import UsageError
from suite.core.files import FolderLock
from suite.results import run_folder
from suite.results.csv_file import read_rows
from suite.results.store import Results
from tests.results.rows import row

TORCH = [*SMALL, "--impl", "torch"]
IN_THE_WAY = ("vector_add.csv", "vector_add.md", "vector_add.samples.npz", "vector_add.parquet")
IN_THE_WAY += (
    "maps/vector_add-mine.png",
    "code/triton/vector_add-N-64-float32-ieee/x.ptx",
    "environment.json",
    ".lock",
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_a_file_of_someone_else_is_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("notes of mine", encoding="utf-8")
    monkeypatch.setattr("suite.worker.pool.Pool.ask", lambda *_, **__: pytest.fail("something ran"))
    assert call(monkeypatch, "compare", *TORCH, "--out", tmp_path) == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert str(tmp_path / name.partition("/")[0]) in complaint
    assert "give another folder with --out" in complaint
    assert name == ".lock" or complaint.endswith("or --force to replace it\n")
    assert contents(tmp_path) == {name: b"notes of mine"}


def test_rows_of_another_run_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Results(tmp_path, {}, operations=["vector_add"]) as results:
        results.put("vector_add", [row()])
        results.complete()
    before = contents(tmp_path)
    monkeypatch.setattr("suite.runner.compare.compare", lambda *_, **__: pytest.fail("something ran"))
    for more in ([], ["--resume"]):
        assert call(monkeypatch, "compare", *TORCH, "--dtype", "fp16", "--out", tmp_path, *more) == 2
        assert "--force" in capsys.readouterr().err
        assert contents(tmp_path) == before
    with Results(tmp_path, {}, operations=["sigmoid"]) as results:
        results.put("sigmoid", [row()])
    assert contents(tmp_path)["vector_add.csv"] == before["vector_add.csv"]
    with Results(tmp_path, {}, operations=["vector_add"], force=True) as results:
        results.put("vector_add", [row("numpy")])
    assert [each.implementation for each in read_rows(tmp_path / "vector_add.csv")] == ["numpy"]


def test_a_published_table_is_replaced_if_forced_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("suite.hardware.device.Device.results_folder", tmp_path)
    (tmp_path / "vector_add.csv").write_text("measured last year", encoding="utf-8")
    assert call(monkeypatch, "compare", *TORCH, "--publish") == 2
    assert "vector_add.csv exists and is not of this run" in capsys.readouterr().err
    monkeypatch.setattr("suite.runner.compare.compare", lambda *_, **__: [])
    assert call(monkeypatch, "compare", *TORCH, "--publish", "--force") == 0


def test_an_interrupted_run_goes_on_with_the_files_that_it_began(tmp_path: Path) -> None:
    """A kill between the record and the table may leave a table that the record does not list."""
    with Results(tmp_path, {}, operations=["matmul", "sigmoid"]) as results:
        results.put("matmul", [row()])
    record = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    record["run"] |= {"tables": [], "begun": ["matmul"]}
    (tmp_path / "environment.json").write_text(json.dumps(record), encoding="utf-8")
    with Results(tmp_path, {}, operations=["matmul"], resumed=True) as results:
        assert results.kept == {}
    (tmp_path / "sigmoid.csv").write_text("of someone else", encoding="utf-8")
    with pytest.raises(UsageError, match=r"sigmoid\.csv exists and is not of this run"):
        Results(tmp_path, {}, operations=["matmul", "sigmoid"], resumed=True)


def test_a_lock_of_a_killed_run_is_taken_over_and_that_of_another_program_is_not(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("123\n", encoding="utf-8")
    FolderLock(tmp_path).release()
    (tmp_path / ".lock").write_text("yarn", encoding="utf-8")
    with pytest.raises(UsageError, match=r"\.lock is not a lock of this suite"):
        FolderLock(tmp_path)
    assert (tmp_path / ".lock").read_text(encoding="utf-8") == "yarn"


def test_the_link_to_the_latest_run_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "latest").write_text("mine", encoding="utf-8")
    run_folder.set_latest(tmp_path / "runs" / "a")
    assert (tmp_path / "latest").read_text(encoding="utf-8") == "mine"
    (tmp_path / "latest").unlink()
    for name in ("a", "b"):
        run_folder.set_latest(tmp_path / "runs" / name)
        assert (tmp_path / "latest").readlink() == Path("runs", name)
