"""The table of a run that has not ended: rows are appended, a killed process may leave a part of one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from suite.core.errors import ResultsError, UsageError
from suite.core.files import append
from suite.diff.load import load
from suite.report.distribution import distributions
from suite.report.load import load_runs
from suite.results import journal
from suite.results.csv_file import SAMPLES, read_rows, to_csv
from suite.results.row import Row
from suite.results.samples import SUFFIX, read_samples
from suite.results.store import Results
from tests.results.rows import row

ENVIRONMENT = {"device": {"name": "D"}, "packages": {}}
ROWS = [
    row("torch", device_us=1.5, reason='µ, a "word"\nand more', driver="580.95.05", sample_us=(1.5, 0.1 + 0.2)),
    row("numpy", device_us=2.5, sample_us=(2.5,)),
]


def killed(folder: Path, *puts: list[Row]) -> Path:
    """The table of a run that stores rows and is then killed."""
    results = Results(folder, ENVIRONMENT)
    for rows in puts:
        results.put("matmul", rows)
    results._lock.release()  # by the kernel
    return folder / "matmul.csv"


def values(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(each.implementation, each.device_us, each.driver, each.sample_us) for each in rows]


def test_a_table_that_is_cut_off_anywhere_has_its_whole_rows(tmp_path: Path) -> None:
    table = killed(tmp_path, [row("jax")], ROWS[:1], ROWS[1:])
    text = table.read_bytes()
    ends = [place for place, byte in enumerate(text) if byte == ord("\n")]
    assert len(ends) == 4, "each record is a line"
    for end in range(ends[1] + 1, len(text) + 1):
        table.write_bytes(text[:end])
        whole = sum(place < end for place in ends) - 1
        assert values(read_rows(table)) == values([row("jax"), *ROWS][:whole])


def test_a_row_that_comes_again_replaces_the_first(tmp_path: Path) -> None:
    other = row("torch", device_us=9.0)
    other.case = "M=2,N=2,K=3"
    table = killed(tmp_path, [row("torch"), row("numpy")], [other], ROWS)
    assert values(read_rows(table)) == values([*ROWS, other])
    assert len(load(table).rows) == 3


def test_a_run_goes_on_after_a_cut_and_its_table_is_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    table = killed(tmp_path / "cut", ROWS[:1], ROWS[1:])
    table.write_bytes(table.read_bytes()[:-3])
    with Results(table.parent, ENVIRONMENT, operations=["matmul"], resumed=True) as results:
        assert [each.implementation for each in results.kept.values()] == ["torch"]
        results.put("matmul", ROWS[1:])
    with Results(tmp_path / "whole", ENVIRONMENT) as results:
        results.put("matmul", ROWS)
    assert table.read_text() == (tmp_path / "whole" / "matmul.csv").read_text().replace("\nand", " and")
    assert list(read_samples(table.parent / f"matmul{SUFFIX}").values()) == [each.sample_us for each in ROWS]


def test_a_killed_run_whose_rows_are_all_there_gets_its_table_when_it_is_resumed(tmp_path: Path) -> None:
    table = killed(tmp_path, ROWS)
    with Results(tmp_path, ENVIRONMENT, operations=["matmul"], resumed=True) as results:
        results.complete()
    assert SAMPLES not in table.read_text()
    assert (tmp_path / "matmul.md").exists()
    assert (tmp_path / f"matmul{SUFFIX}").exists()


def test_a_run_that_has_not_ended_is_reported_with_its_samples(tmp_path: Path) -> None:
    killed(tmp_path, ROWS)
    found = distributions(load_runs([tmp_path]))
    assert found is not None
    assert found["least"] == [0.3, 2.5]


def test_a_table_without_its_last_line_feed_is_whole_unless_it_is_a_journal(tmp_path: Path) -> None:
    table = tmp_path / "matmul.csv"
    table.write_text(to_csv(ROWS).removesuffix("\n"))
    assert len(read_rows(table)) == 2


def text_added(table: Path) -> None:
    table.write_text(table.read_text() + "\n")


@pytest.mark.parametrize("change", [text_added, Path.unlink], ids=["changed", "removed"])
def test_a_table_that_something_else_changes_is_written_whole(tmp_path: Path, change: Callable[[Path], None]) -> None:
    table = tmp_path / "matmul.csv"
    with Results(tmp_path, ENVIRONMENT) as results:
        results.put("matmul", ROWS[:1])
        change(table)
        results.put("matmul", ROWS[1:])
        assert values(read_rows(table)) == values(ROWS)


def test_a_row_with_other_dimensions_gets_its_columns(tmp_path: Path) -> None:
    with_options = row("torch")
    with_options.case = "M=1,N=2,K=3,Q=7"
    table = killed(tmp_path, ROWS, [with_options])
    assert ",Q," in table.read_text().partition("\n")[0]
    assert len(read_rows(table)) == 3


def test_a_full_disk_leaves_the_rows_that_were_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, sync = tmp_path / "matmul.csv", os.fsync

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Results(tmp_path, ENVIRONMENT) as results:
        results.put("matmul", ROWS[:1])
        before = table.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        results.put("matmul", ROWS[1:])
        assert isinstance(results.problem, ResultsError)
        assert table.read_bytes() == before
        monkeypatch.setattr(os, "fsync", sync)
    assert results.problem is None
    assert values(read_rows(table)) == values([replace(each, sample_us=()) for each in ROWS])


def test_damage_before_the_last_line_is_refused(tmp_path: Path) -> None:
    table = killed(tmp_path, ROWS[:1], ROWS[1:])
    text = table.read_text()
    for damaged in (text.replace("[2.5]", "[2.5"), text.replace("[2.5]", "2.5"), text.replace('"', "", 1)):
        table.write_text(damaged)
        with pytest.raises(ResultsError, match=r"matmul\.csv: not a "):
            read_rows(table)
        with pytest.raises(UsageError):
            load(table)


def test_as_much_is_written_for_a_row_of_a_large_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    monkeypatch.setattr(
        journal, "append", lambda path, text, size: written.append(len(text)) or append(path, text, size)
    )
    many = [Row("matmul", f"M={size},N=2,K=3", "float32", "ieee", "torch") for size in range(300)]
    with Results(tmp_path, ENVIRONMENT) as results:
        results.put("matmul", many)
        results.put("matmul", ROWS[1:])
    (length,) = written
    assert length < 1000
