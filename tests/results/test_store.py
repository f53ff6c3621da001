"""A results folder while a run writes to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.core.errors import ResultsError, UsageError
from suite.results import journal, store
from suite.results.csv_file import read_rows, to_csv
from suite.results.render import markdown
from suite.results.resume import table_records
from suite.results.store import Results
from tests.results.rows import row

ENVIRONMENT = {"device": {"name": "D"}, "command": "c", "packages": {}}


def test_rows_are_written_as_they_come_and_other_operations_stay(tmp_path: Path) -> None:
    (tmp_path / "sigmoid.csv").write_text("kept", encoding="utf-8")
    with Results(tmp_path, ENVIRONMENT) as results:
        assert not (tmp_path / "matmul.csv").exists()
        results.put("matmul", [row()])
        assert len(read_rows(tmp_path / "matmul.csv")) == 1
        results.put("matmul", [row("numpy"), row(device_us=3.0)])
        assert [(r.implementation, r.device_us) for r in read_rows(tmp_path / "matmul.csv")] == [
            ("torch", 3.0),
            ("numpy", None),
        ]
        assert not json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))["run"]["complete"]
        results.complete()
    record = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    assert record["device"]["name"] == "D"
    assert record["run"] == {"complete": True, "tables": ["matmul"], "begun": ["matmul"], "settings": {}}
    assert (tmp_path / "sigmoid.csv").read_text(encoding="utf-8") == "kept"
    assert (tmp_path / "matmul.csv").read_text(encoding="utf-8") == to_csv([row(device_us=3.0), row("numpy")])
    assert {path.name for path in tmp_path.iterdir()} == {"sigmoid.csv", "matmul.csv", "matmul.md", "environment.json"}


def test_each_table_keeps_the_record_of_the_run_that_wrote_it(tmp_path: Path) -> None:
    def run(command: str, *operations: str) -> None:
        with Results(tmp_path, {**ENVIRONMENT, "command": command}) as results:
            for name in operations:
                results.put(name, [row()])
            results.complete()

    run("first", "matmul", "sigmoid", "attention")
    run("second", "matmul")
    run("third", "attention")
    (tmp_path / "sigmoid.csv").rename(tmp_path / "moved.csv")
    record = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    assert (record["command"], record["run"]["tables"]) == ("third", ["attention"])
    assert {name: each["command"] for name, each in record["earlier"].items()} == {
        "matmul": "second",
        "sigmoid": "first",
    }
    assert not any("earlier" in each for each in record["earlier"].values())
    assert {name: each["command"] for name, each in table_records(tmp_path).items()} == {
        "attention": "third",
        "matmul": "second",
    }
    run("fourth", "attention", "matmul")
    assert "earlier" not in json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"run": 1}', '{"run": {"tables": 1}}', '{"earlier": 1}', "[" * 10**5])
def test_a_record_that_is_not_ours_is_replaced_if_forced_alone(tmp_path: Path, text: str) -> None:
    record = tmp_path / "environment.json"
    record.write_text(text, encoding="utf-8")
    (tmp_path / "sigmoid.csv").write_text("kept", encoding="utf-8")
    with pytest.raises(UsageError, match=r"environment\.json is not an environment record of this suite and is left"):
        Results(tmp_path, ENVIRONMENT)
    assert record.read_text(encoding="utf-8") == text
    with Results(tmp_path, ENVIRONMENT, force=True) as results:
        results.put("matmul", [row()])
    assert list(table_records(tmp_path)) == ["matmul"]


def test_files_are_written_from_the_rows_as_they_were_put(tmp_path: Path) -> None:
    with Results(tmp_path, ENVIRONMENT) as results:
        live = row(device_us=1.0)
        results.put("matmul", [live])
        live.device_us = 2.0
    text = (tmp_path / "matmul.md").read_text(encoding="utf-8")
    assert text == markdown(read_rows(tmp_path / "matmul.csv"), ENVIRONMENT)
    assert read_rows(tmp_path / "matmul.csv")[0].device_us == 1.0


def test_a_disk_that_is_full_for_a_while_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str] = []
    with Results(tmp_path, ENVIRONMENT, on_problem=problems.append) as results:
        with monkeypatch.context() as patch:
            for module in (store, journal):
                patch.setattr(module, "write_atomically", full)
            for name in ("torch", "numpy"):
                results.put("matmul", [row(name)])
            assert isinstance(results.problem, ResultsError)
            assert not results.begun
        assert problems == ["error: cannot write; the run goes on"]
        results.put("matmul", [row("triton")])
        assert results.problem is None
        results.complete()
    assert [found.implementation for found in read_rows(tmp_path / "matmul.csv")] == ["torch", "numpy", "triton"]


def full(path: Path, text: str) -> None:
    raise ResultsError("cannot write")


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with Results(tmp_path, ENVIRONMENT), pytest.raises(UsageError, match="is writing results there"):
        Results(tmp_path, ENVIRONMENT)
    with Results(tmp_path, ENVIRONMENT):
        pass
    assert list(tmp_path.iterdir()) == [], "a run without rows leaves nothing"
