"""The table on disk: what is written is read back the same, files are replaced whole, text stays text."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.core.errors import ResultsError, UsageError
from suite.core.files import write_atomically
from suite.diff import judge as diff
from suite.results import render as report
from suite.results import resume
from suite.results.row import COLUMNS, STATUSES, TYPES, Row, frame, from_frame, read_csv, read_rows, to_csv
from suite.results.store import Results


def row(implementation: str = "torch", **values: object) -> Row:
    return Row("matmul", "M=1,N=2,K=3", "float32", "ieee", implementation, "native", **values)  # type: ignore[arg-type]


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)
KINDS = {
    "str": texts,
    "int": st.integers(0, 2**63),
    "int | None": st.none() | st.integers(0, 10**18),
    "float | None": numbers | st.just(math.inf),
}
any_row = st.builds(Row, **{name: KINDS[kind] for name, kind in TYPES.items() if name != "status"}).flatmap(
    lambda built: st.sampled_from(STATUSES).map(lambda status: replace(built, status=status))
)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(any_row, min_size=1, max_size=3))
def test_rows_survive_the_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    """Any text and any number in any column."""
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    write_atomically(path, to_csv(rows))
    assert read_rows(path) == rows
    assert to_csv(read_rows(path)) == to_csv(rows)


GOOD = to_csv(
    [row("torch", device_us=1.5, samples=7, reason='a "word", and\nmore'), row("triton", error_ratio=math.inf)]
)


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_table_is_refused_or_read_right(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut, overwritten, shuffled or made of noise: `ResultsError`, or rows whose values are of the columns' types."""
    text = GOOD.encode()
    damage = data.draw(st.sampled_from(["cut", "noise", "overwritten", "shuffled", "value", "only noise"]))
    place = data.draw(st.integers(0, len(text)))
    noise = data.draw(st.binary(max_size=20))
    if damage == "cut":
        text = text[:place]
    elif damage == "noise":
        text = text[:place] + noise + text[place:]
    elif damage == "overwritten":
        text = text[:place] + noise + text[place + len(noise) :]
    elif damage == "only noise":
        text = noise
    else:
        records = list(csv.reader(io.StringIO(GOOD, newline="")))
        if damage == "value":
            value = data.draw(texts | st.sampled_from(["nan", "-inf", "1e999", "1_000", "0x10", "٣", " 5", "None"]))
            records[1][data.draw(st.integers(0, len(COLUMNS) - 1))] = value
        else:
            order = data.draw(st.permutations(range(len(COLUMNS))))
            records = [[record[i] for i in order] for record in records]
        shuffled = io.StringIO(newline="")
        csv.writer(shuffled).writerows(records)
        text = shuffled.getvalue().encode()
    path = tmp_path_factory.mktemp("csv") / "matmul.csv"
    path.write_bytes(text)
    told, rows = "", list[Row]()
    try:
        rows = read_rows(path)
    except ResultsError as error:
        told = str(error)
    if told:
        assert str(path) in told
        assert "\n" not in told
    else:
        assert damage != "shuffled" or to_csv(rows) == GOOD
        for found in rows:
            assert found.status in STATUSES
            for name, kind in TYPES.items():
                allowed = (str,) if kind == "str" else (int,) if kind.startswith("int") else (float,)
                value = getattr(found, name)
                assert isinstance(value, allowed) or (value is None and kind.endswith("None")), name
        report.markdown(read_csv(path), {})
        for group in report.cases(rows):
            report.plain_lines(group)
    for command in (lambda: diff.compare(path, path), lambda: resume.find(path.parent, ["matmul"], {})):
        with contextlib.suppress(ResultsError, UsageError):
            command()


def test_an_infinite_error_ratio_survives_the_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_atomically(path, to_csv([row(error_ratio=math.inf)]))
    assert from_frame(read_csv(path))[0].error_ratio == math.inf


def test_the_frame_has_one_column_for_each_field() -> None:
    assert tuple(frame([row()]).columns) == COLUMNS
    assert COLUMNS[:8] == ("operation", "case", "dtype", "precision", "implementation", "mode", "status", "reason")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "operation,case\n"], ids=["empty", "other", "older"])
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ResultsError, match=r"t\.csv: not a "):
        read_csv(path)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    write_atomically(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        ResultsError, match=r"cannot write .*t\.csv: No space left on device; what was there is unchanged"
    ):
        write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left behind"


def test_a_written_file_can_be_read_by_others(tmp_path: Path) -> None:
    write_atomically(tmp_path / "t.csv", "x")
    assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == 0o644


def test_results_come_as_rows_do_and_other_operations_stay(tmp_path: Path) -> None:
    (tmp_path / "sigmoid.csv").write_text("kept", encoding="utf-8")
    with Results(tmp_path, {"device": {"name": "D"}, "command": "c", "packages": {}}) as results:
        assert not (tmp_path / "matmul.csv").exists()
        results.put("matmul", [row()])
        assert len(read_csv(tmp_path / "matmul.csv")) == 1
        results.put("matmul", [row("numpy"), row(device_us=3.0)])
        assert [(r.implementation, r.device_us) for r in read_rows(tmp_path / "matmul.csv")] == [
            ("torch", 3.0),
            ("numpy", None),
        ]
        assert not json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))["run"]["complete"]
        results.complete()
    record = json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))
    assert record["device"]["name"] == "D"
    assert record["run"] == {"complete": True, "tables": ["matmul"], "settings": {}}
    assert (tmp_path / "sigmoid.csv").read_text(encoding="utf-8") == "kept"
    assert {path.name for path in tmp_path.iterdir()} == {"sigmoid.csv", "matmul.csv", "matmul.md", "environment.json"}


def test_markdown_marks_the_fastest_line_and_escapes_what_kernels_say() -> None:
    rows = [row(device_us=2.0, recorder="cupti"), row("cuda/tiled", device_us=1.0, recorder="cupti")]
    rows.append(row("triton", status="error", reason="<script>| *x* [a](b)\nnext"))
    text = report.markdown(
        frame(rows), {"device": {"name": "NVIDIA H200"}, "command": "suite", "packages": {"torch": "2"}}
    )
    assert "**cuda/tiled**" in text
    assert "**torch**" not in text
    assert "&lt;script&gt;\\| \\*x\\* \\[a\\](b) next" in text


def test_rows_of_different_recorders_are_not_ranked_together() -> None:
    rows = [row(device_us=2.0, recorder="cupti"), row("numpy", device_us=1.0, recorder="wall")]
    assert report.fastest(rows) is None


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, 3, ""),
        (math.nan, 3, ""),
        (math.inf, 3, "inf"),
        (0.0, 3, "0"),
        (1234.5, 4, "1,234"),
        (0.0123456, 3, "0.0123"),
        (177.96, 4, "178.0"),
        (1e-9, 3, "1.00e-09"),
        (3.2e12, 3, "3.20e+12"),
        (0.995, 3, "0.995"),
    ],
)
def test_numbers_are_shown_with_significant_digits(value: float | None, digits: int, text: str) -> None:
    assert report.number(value, digits) == text


def test_exit_status_is_1_for_failures_only() -> None:
    assert report.exit_status([row(), row(status="unsupported"), row(status="unavailable")]) == 0
    for status in ("wrong", "error", "timeout"):
        assert report.exit_status([row(), row(status=status)]) == 1
