"""Loading the runs of a report: folders with their tables and inner folders, labels, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from diff.rows import folder
from report.rows import RECORD, row, run_of, square

from suite.core.errors import UsageError
from suite.report.load import load_runs


def test_a_run_has_the_tables_of_the_folders_directly_below(tmp_path: Path) -> None:
    folder(tmp_path / "run", square(512), RECORD)
    folder(tmp_path / "run" / "large", square(4096), RECORD)
    folder(tmp_path / "run" / "runs" / "of_today", square(1024), RECORD)
    folder(tmp_path / "run" / "proof", [], None)
    (tmp_path / "run" / "proof" / "timer.csv").write_text("check,result\n")
    (run,) = load_runs([tmp_path / "run"])
    assert {(entry.table, entry.dims["M"]) for entry in run.entries} == {("", 512), ("large", 4096)}


def test_a_table_alone_is_a_run(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", square(), RECORD)
    (run,) = load_runs([path / "matmul.csv"])
    assert run.label == "NVIDIA H200"


def test_runs_of_one_device_are_named_after_their_folders(tmp_path: Path) -> None:
    runs = load_runs([folder(tmp_path / name, square(), RECORD) for name in ("before", "after")])
    assert [run.label for run in runs] == ["before", "after"]


def test_a_case_is_taken_apart(tmp_path: Path) -> None:
    rows = [row(case="B=2,S_q=16,causal,layout=nt", dtype="float32", precision="tf32")]
    (entry,) = run_of(tmp_path / "run", rows).entries
    assert entry.dims == {"B": 2, "S_q": 16}
    assert entry.options == "causal,layout=nt"
    assert entry.arithmetic == "float32 tf32"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(("missing",), "no such file or folder"), (("empty",), "no results here"), (("run", "run"), "given twice")],
    ids=["missing", "empty", "twice"],
)
def test_what_is_no_run_is_refused(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    (tmp_path / "empty").mkdir()
    folder(tmp_path / "run", square(), RECORD)
    with pytest.raises(UsageError, match=complaint):
        load_runs([tmp_path / name for name in arguments])
