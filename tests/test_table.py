"""The table on disk: what is written is read back the same, files are replaced whole, text stays text."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite import report
from suite.errors import ResultsError
from suite.results import Results
from suite.table import COLUMNS, Row, frame, from_frame, read_csv, to_csv, write_atomically


def row(implementation: str = "torch", **values: object) -> Row:
    return Row("matmul", "M=1,N=2,K=3", "float32", "ieee", implementation, "native", **values)  # type: ignore[arg-type]


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\0"), max_size=40)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(numbers, numbers, texts), min_size=1, max_size=5))
def test_rows_survive_the_csv(tmp_path_factory: pytest.TempPathFactory, values: list[tuple[float, float, str]]) -> None:
    rows = [row(device_us=a, error_ratio=b, reason=text) for a, b, text in values]
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(to_csv(rows), encoding="utf-8", newline="")
    assert from_frame(read_csv(path)) == rows


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
    results = Results(tmp_path, {"device": {"name": "D"}, "command": "c", "packages": {}})
    assert not (tmp_path / "matmul.csv").exists()
    results.add("matmul", [row()])
    assert len(read_csv(tmp_path / "matmul.csv")) == 1
    results.add("matmul", [row("numpy")])
    assert list(read_csv(tmp_path / "matmul.csv")["implementation"]) == ["torch", "numpy"]
    assert json.loads((tmp_path / "environment.json").read_text(encoding="utf-8"))["device"]["name"] == "D"
    assert (tmp_path / "sigmoid.csv").read_text(encoding="utf-8") == "kept"


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
