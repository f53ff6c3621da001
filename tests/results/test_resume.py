"""Continuing an interrupted run: settings that must be equal, rows that are taken over, and the hash of the code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite import frameworks
from suite.core.errors import ResultsError, UsageError
from suite.core.paths import ROOT
from suite.hardware.device import Device
from suite.results import resume
from suite.results.row import Attempt
from suite.results.store import Results
from tests.results.rows import row

SETTINGS = {"options": {"op": ["matmul"]}, "code": {"digest": "1"}}
ENVIRONMENT: dict[str, Any] = {"device": {"name": "D"}, "packages": {"torch": "2.13"}}


def interrupted(folder: Path) -> None:
    """A run of `SETTINGS` that ended after two rows."""
    with Results(folder, ENVIRONMENT, operations=["matmul"], settings=SETTINGS) as results:
        results.put("matmul", [row(timed=Attempt.DONE, device_us=1.0), row("numpy", timed=Attempt.FAILED)])


def resumed(folder: Path, settings: dict[str, Any] = SETTINGS) -> Results:
    return Results(folder, {}, operations=["matmul", "sigmoid"], settings=settings, resumed=True)


def test_rows_are_taken_over_with_their_typed_fields(tmp_path: Path) -> None:
    interrupted(tmp_path)
    with resumed(tmp_path) as results:
        assert [(r.implementation, r.timed) for r in results.kept.values()] == [("torch", "done"), ("numpy", "failed")]
        results.put("matmul", [row("triton")])
        results.complete()
    record = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    assert record["device"] == {"name": "D"}, "the environment stays that of the first run"
    assert len(record["resumed_utc"]) == 1
    assert record["run"]["complete"]
    with resumed(tmp_path) as results:
        assert len(results.kept) == 3


def test_a_row_that_was_kept_changes_on_disk_only_when_it_is_put(tmp_path: Path) -> None:
    interrupted(tmp_path)
    with resumed(tmp_path) as results:
        next(iter(results.kept.values())).device_us = 9.0
        results.put("matmul", [row("triton")])
    with resumed(tmp_path) as results:
        assert [r.device_us for r in results.kept.values()] == [1.0, None, None]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"op": ["all"]}, "code": {"digest": "1"}}, r'--op \["matmul"\] there, \["all"\] now'),
        ({"options": {}, "code": {"digest": "1"}}, r'--op \["matmul"\] there, not given now'),
        ({**SETTINGS, "code": {"digest": "2"}}, "the code of the suite or of a kernel has changed since"),
        ({**SETTINGS, "device": {"name": "E"}}, 'device name not given there, "E" now'),
    ],
)
def test_a_run_of_other_settings_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    interrupted(tmp_path)
    with pytest.raises(UsageError, match=message):
        resumed(tmp_path, settings)
    with resumed(tmp_path) as results:
        assert len(results.kept) == 2, "nothing is lost by asking"


@pytest.mark.parametrize("us", [-1.0, float("inf")])
def test_a_time_that_nothing_measures_is_refused_as_by_a_report(tmp_path: Path, us: float) -> None:
    with Results(tmp_path, ENVIRONMENT, operations=["matmul"], settings=SETTINGS) as results:
        results.put("matmul", [row(timed=Attempt.DONE, device_us=us)])
    with pytest.raises(ResultsError, match=f"row 1: device_us is {us}, which nothing measures"):
        resumed(tmp_path)


def test_a_table_without_its_record_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path)
    (tmp_path / "environment.json").unlink()
    with pytest.raises(UsageError, match=r"has matmul\.csv, but no environment\.json that describes its run"):
        resumed(tmp_path)
    (tmp_path / "environment.json").write_text("{", encoding="utf-8")
    with pytest.raises(ResultsError, match="not a readable environment record"):
        resumed(tmp_path)


def test_a_row_whose_worker_was_killed_from_outside_is_run_again(tmp_path: Path) -> None:
    with Results(tmp_path, ENVIRONMENT, operations=["matmul"], settings=SETTINGS) as results:
        results.put("matmul", [row(), row("numpy", status="error", killed_from_outside=True)])
    with resumed(tmp_path) as results:
        assert [each.implementation for each in results.kept.values()] == ["torch"]
        results.put("matmul", [row("numpy")])
    with resumed(tmp_path) as results:
        assert [each.implementation for each in results.kept.values()] == ["torch", "numpy"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("device", "a GPU"), ("packages", ["torch"])],
)
def test_a_record_whose_parts_have_another_form_is_refused(tmp_path: Path, name: str, value: object) -> None:
    interrupted(tmp_path)
    path = tmp_path / "environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), name: value}), encoding="utf-8")
    with pytest.raises(ResultsError, match=rf"environment\.json: not a readable environment record: {name} is "):
        resumed(tmp_path)


def test_an_empty_folder_is_a_new_run(tmp_path: Path) -> None:
    with resumed(tmp_path) as results:
        assert results.kept == {}


def test_settings_are_json_of_what_decides_a_row(tmp_path: Path) -> None:
    kernel = tmp_path / "mine.py"
    kernel.write_text("1", encoding="utf-8")
    options = {"op": ["matmul"], "brought": [kernel], "seed": 7, "causal": None, "sweep": False, "timeout": 9.0}
    found = resume.settings(options, Device("cpu", name="CPU"), ENVIRONMENT)
    assert json.loads(json.dumps(found)) == found
    assert set(found["options"]) == {"op", "brought", "seed"}
    assert found["options"]["brought"][0]["file"] == str(kernel)
    kernel.write_text("2", encoding="utf-8")
    assert resume.settings(options, Device("cpu", name="CPU"), ENVIRONMENT) != found


@pytest.mark.parametrize("kind", ["pipe", "endless", "gone"])
def test_settings_of_a_path_that_is_no_regular_file(tmp_path: Path, kind: str) -> None:
    """The function neither waits for a pipe nor reads a device without end."""
    path = tmp_path / "mine.py"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    found = resume.settings({"files": [path]}, Device("cpu", name="CPU"), ENVIRONMENT)
    assert found["options"]["files"] == [{"file": str(path), "digest": "unreadable"}]


def test_a_helper_beside_a_file_belongs_to_the_settings(tmp_path: Path) -> None:
    kernel, helper = tmp_path / "mine.py", tmp_path / "helper.py"
    kernel.write_text("import helper\n", encoding="utf-8")
    helper.write_text("1", encoding="utf-8")
    before = resume.settings({"files": [kernel]}, Device("cpu", name="CPU"), ENVIRONMENT)
    helper.write_text("2", encoding="utf-8")
    assert resume.settings({"files": [kernel]}, Device("cpu", name="CPU"), ENVIRONMENT) != before


# The digest of the code


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree with one file in each folder of code."""
    for folder in resume.source_folders():
        (tmp_path / folder / "__pycache__").mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("1", encoding="utf-8")
    return tmp_path


def test_every_framework_and_the_suite_are_in_the_digest(tree: Path) -> None:
    found = resume.source_folders()
    assert found[0] == "suite"
    assert set(found[1:]) == {frameworks.get(name).folder for name in frameworks.names()}
    assert all((ROOT / folder).is_dir() for folder in found)
    for folder in found:
        before = resume.code_digest(tree)
        (tree / folder / "a.py").write_text("2", encoding="utf-8")
        assert resume.code_digest(tree) != before, folder


def test_the_folder_of_a_new_framework_is_in_the_digest(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "new_impls").mkdir()
    (tree / "new_impls" / "matmul.py").write_text("1", encoding="utf-8")
    without, names, get = resume.code_digest(tree), frameworks.names(), frameworks.get
    monkeypatch.setattr(frameworks, "names", lambda: (*names, "new"))
    monkeypatch.setattr(
        frameworks, "get", lambda name: SimpleNamespace(folder="new_impls") if name == "new" else get(name)
    )
    assert "new_impls" in resume.source_folders()
    before = resume.code_digest(tree)
    assert before != without
    (tree / "new_impls" / "matmul.py").write_text("2", encoding="utf-8")
    assert resume.code_digest(tree) != before


@pytest.mark.parametrize("name", ["a.cu", "a.cuh", "host/a.h", "deep/er/a.py", "templates/kernel.py.txt"])
def test_sources_and_templates_change_the_digest(tree: Path, name: str) -> None:
    path, before = tree / "suite" / name, resume.code_digest(tree)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")
    added = resume.code_digest(tree)
    assert added != before
    path.rename(path.with_name(f"b{''.join(path.suffixes)}"))
    assert resume.code_digest(tree) not in (before, added), "the name counts too"


@pytest.mark.parametrize("name", ["__pycache__/a.py", "notes.md", "tuned/h200.json"])
def test_what_is_no_source_does_not_change_the_digest(tree: Path, name: str) -> None:
    path, before = tree / "suite" / name, resume.code_digest(tree)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")
    assert resume.code_digest(tree) == before
