"""Tables of older versions: the new columns are derived from their text, in one place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.core.paths import ROOT
from suite.diff.judge import judge
from suite.diff.load import load
from suite.results.csv_file import read_rows, to_csv
from suite.results.legacy import MISSING, completed
from suite.results.render import markdown
from suite.results.row import Attempt, Row, Status
from tests.results.rows import row
from tests.results.test_csv_file import without

COMMITTED = sorted(
    path
    for path in (ROOT / "results").rglob("*.csv")
    if path.with_name("environment.json").exists() and not {"runs", "latest"} & set(path.parts)
)


@pytest.mark.parametrize(
    ("old", "timed", "compiled"),
    [
        (row(), Attempt.NOT_TRIED, Attempt.NOT_TRIED),
        (row(device_us=1.0, recorder="cupti"), Attempt.DONE, Attempt.NOT_TRIED),
        (row(device_us=1.0, compile_s=2.0, compile_warm_s=1.0), Attempt.DONE, Attempt.DONE),
        (row(device_us=1.0, reason="not compiled again: killed"), Attempt.DONE, Attempt.FAILED),
        (row(device_us=1.0, compile_s=2.0), Attempt.DONE, Attempt.NOT_TRIED),
        (row(reason="a remark; not timed: RecorderError: no"), Attempt.FAILED, Attempt.NOT_TRIED),
        (row(device_us=1.0, reason="not timed: killed"), Attempt.DONE, Attempt.NOT_TRIED),
        (row(recorder="cupti", reason="cupti saw no kernel"), Attempt.FAILED, Attempt.NOT_TRIED),
        (row(status="error", reason="while timed: killed"), Attempt.FAILED, Attempt.NOT_TRIED),
        (row(status="wrong", reason="value: at [0]"), Attempt.NOT_TRIED, Attempt.NOT_TRIED),
    ],
)
def test_attempts_are_derived_from_numbers_and_reason(old: Row, timed: Attempt, compiled: Attempt) -> None:
    found = completed(old)
    assert (found.timed, found.compiled) == (timed, compiled)


@pytest.mark.parametrize(
    ("remarks", "clocks_lowered", "suspect"),
    [
        ("", False, False),
        ("clocks were lowered: thermal slowdown by software", True, False),
        ("suspect: faster than the device's memory (datasheet) allows", False, True),
        ("suspect: faster than the device's memory (datasheet) allows; clocks were lowered: x", True, True),
        ("2 other processes on the device", False, False),
    ],
)
def test_doubts_are_derived_from_remarks(remarks: str, clocks_lowered: bool, suspect: bool) -> None:
    found = completed(row(device_us=1.0, remarks=remarks))
    assert (found.clocks_lowered, found.suspect) == (clocks_lowered, suspect)


def test_text_decides_nothing_in_a_table_of_this_version(tmp_path: Path) -> None:
    said = row(device_us=1.0, reason="not timed: x; not compiled again: x", remarks="suspect: x; clocks were lowered")
    new, old = tmp_path / "new.csv", tmp_path / "old.csv"
    new.write_text(to_csv([said]), encoding="utf-8", newline="")
    old.write_text(without(to_csv([said]), *MISSING), encoding="utf-8", newline="")
    assert read_rows(new) == [said]
    assert read_rows(old) == [completed(said)] != read_rows(new)


def test_there_are_committed_tables() -> None:
    assert len(COMMITTED) >= 9


@pytest.mark.parametrize(
    "path",
    [path for path in COMMITTED if path.with_suffix(".md").exists()],
    ids=lambda path: str(path.relative_to(ROOT / "results")),
)
def test_every_committed_table_is_read_and_rendered_as_it_was(path: Path) -> None:
    """The tables of the committed Markdown follow from the committed CSV and environment."""
    rows = read_rows(path)
    for found in rows:
        failed = Attempt.FAILED if "while timed" in found.reason else Attempt.NOT_TRIED
        assert found.timed is (Attempt.DONE if found.status is Status.OK else failed)
        assert not found.suspect
    environment = json.loads(path.with_name("environment.json").read_text(encoding="utf-8"))
    before = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    after = markdown(rows, environment).splitlines()
    assert [text for text in after if not text.startswith("Command: ")] == [
        text for text in before if not text.startswith("Command: ")
    ]


@pytest.mark.parametrize("folder", sorted({path.parent for path in COMMITTED}), ids=lambda path: path.name)
def test_committed_results_do_not_differ_from_themselves(folder: Path) -> None:
    found = judge(load(folder), load(folder))
    assert found.exit_status == 0
    assert not found.counts["FASTER"]
