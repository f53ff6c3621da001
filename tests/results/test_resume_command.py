"""`compare --resume`: finished rows are not run again, and results with other settings are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import PLAIN, call, fixed_code_digest  # noqa: F401 (a fixture)

from suite.results.store import Results

pytestmark = pytest.mark.usefixtures("fixed_code_digest")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, fixed_code_digest: None) -> Path:  # noqa: F811
    """The folder of a complete run."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        assert call(patch, "compare", *PLAIN, "--out", folder) == 0
    return folder


def never(*_: object, **__: object) -> None:
    raise AssertionError("a worker was asked")


def test_resuming_a_complete_run_repeats_nothing(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "vector_add.csv").read_bytes()
    monkeypatch.setattr("suite.worker.pool.Pool.ask", never)
    assert call(monkeypatch, "compare", *PLAIN, "--timeout", "60", "--json", "--out", finished, "--resume") == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["rows"]) == 6
    assert "resumed: 6 rows exist already" in printed.err
    assert (finished / "vector_add.csv").read_bytes() == before


def test_resuming_into_an_empty_or_missing_folder_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.runner.compare.compare", lambda *_, **__: [])
    assert call(monkeypatch, "compare", *PLAIN, "--out", tmp_path / "new", "--resume") == 0


def _change(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "environment.json"
        record = json.loads(path.read_text(encoding="utf-8"))
        place = record["run"]["settings"]
        *parents, last = name.split("/")
        for parent in parents:
            place = place[parent]
        place[last] = value
        path.write_text(json.dumps(record), encoding="utf-8")

    return change


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def _older(folder: Path) -> None:
    record = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    del record["run"]
    (folder / "environment.json").write_text(json.dumps(record), encoding="utf-8")


def _foreign(folder: Path) -> None:
    """A row whose operation is a path."""
    path = folder / "vector_add.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("vector_add", "../../etc/passwd"), encoding="utf-8")


UNUSABLE: dict[str, tuple[list[str], Callable[[Path], object], int, str]] = {
    "another seed": (["--seed", "7"], lambda folder: None, 2, "--seed not given there, 7 now"),
    "other lines": (
        ["--impl", "jax"],
        lambda folder: None,
        2,
        '--impl ["torch", "numpy"] there, ["torch", "numpy", "jax"] now',
    ),
    "another device": ([], _change("device/name", "another"), 2, 'device name "another" there, '),
    "other versions": ([], _change("versions/torch", "1.0"), 2, 'versions torch "1.0" there, '),
    "other code": ([], _change("code/digest", ""), 2, "the code of the suite or of a kernel has changed since"),
    "no settings": ([], _older, 2, "does not say what its run was for (an older version?)"),
    "no record": (
        [],
        lambda folder: (folder / "environment.json").unlink(),
        2,
        "has vector_add.csv, but no environment.json",
    ),
    "damaged record": (
        [],
        _write("environment.json", '{"run": '),
        1,
        "environment.json: not a readable environment record",
    ),
    "strange record": ([], _write("environment.json", "[[]]"), 2, "does not say what its run was for"),
    "damaged table": ([], _write("vector_add.csv", "operation,case\n1"), 1, "not a results table of this version"),
    "empty table": ([], _write("vector_add.csv", ""), 1, "not a readable results table"),
    "foreign table": ([], _foreign, 1, "row 1: it is of ../../etc/passwd"),
}


@pytest.mark.parametrize(("more", "damage", "status", "complaint"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_run_that_cannot_be_resumed_is_one_line_and_stays(
    more: list[str],
    damage: Callable[[Path], object],
    status: int,
    complaint: str,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    damage(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("suite.worker.pool.Pool.ask", never)
    assert call(monkeypatch, "compare", *PLAIN, *more, "--out", folder, "--resume") == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert complaint in printed.err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_older_table_is_not_taken_for_that_of_the_interrupted_run(finished: Path, tmp_path: Path) -> None:
    """A run that ended before an operation leaves the operation's old table; its rows are made again."""
    folder = tmp_path / "out"
    shutil.copytree(finished, folder)
    record = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    record["run"]["tables"] = []
    (folder / "environment.json").write_text(json.dumps(record), encoding="utf-8")
    with Results(folder, {}, operations=["vector_add"], settings=record["run"]["settings"], resumed=True) as results:
        assert results.kept == {}
