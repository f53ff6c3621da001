"""`Row`: typed fields, and filling them from what a worker measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from suite.core.errors import ResultsError
from suite.results.csv_file import to_csv
from suite.results.frame import frame, read_frame
from suite.results.frame_rows import rows_of
from suite.results.row import COLUMNS, Attempt, Mode, Row, Status, StoppedBy
from tests.results.rows import row


def test_texts_become_enumerations() -> None:
    found = Row("matmul", "M=1", "float32", "ieee", "torch", "emulated", "wrong", stopped_by="budget", timed="done")
    assert found.execution is Mode.EMULATED
    assert found.status is Status.WRONG
    assert found.stopped_by is StoppedBy.BUDGET
    assert found.timed is Attempt.DONE
    with pytest.raises(ValueError, match="fine"):
        row(status="fine")


def test_a_row_is_filled_with_typed_values() -> None:
    """Values from a kernel are made harmless: one printable line, no NaN."""
    found = row(device_us=1.0)
    found.fill(
        {
            "status": "error",
            "reason": "a\x1b[31m\nb\udc80",
            "error_ratio": math.nan,
            "device_us": None,
            "clocks_lowered": True,
        }
    )
    assert found.status is Status.ERROR
    assert (found.reason, found.error_ratio, found.device_us) == ("a [31m b", None, 1.0)
    assert found.clocks_lowered is True


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"device_ms": 1.0}, "'device_ms' is not a column of a results table"),
        ({"key": ()}, "'key' is not a column"),
        ({"status": "fi\nne"}, "status is 'fi ne'; valid are ok, wrong, error, timeout, unavailable, unsupported"),
        ({"timed": "yes"}, "timed is 'yes'; valid are done, failed"),
    ],
)
def test_a_misspelt_column_or_value_is_an_error(values: dict[str, object], message: str) -> None:
    with pytest.raises(ResultsError) as caught:
        row().fill(values)
    assert str(caught.value).startswith(message)


def test_failures_are_wrong_error_timeout_and_suspect_times() -> None:
    assert [status for status in Status if row(status=status).failed] == ["wrong", "error", "timeout"]
    assert row(suspect=True).failed
    assert not row(remarks="suspect: in words only").failed


def test_the_frame_has_one_column_for_each_field(tmp_path: pytest.TempPathFactory) -> None:
    rows = [row(suspect=True, timed=Attempt.DONE, device_us=2.0), row("triton", error_ratio=math.inf)]
    data = frame(rows)
    assert tuple(data.columns) == (*COLUMNS, "M", "N", "K", "layout", "inputs")
    assert [type(value) for value in data["timed"]] == [str, str]
    assert list(data["suspect"]) == [True, False]
    assert data["error_ratio"][1] == math.inf
    path = tmp_path / "t.csv"
    path.write_text(to_csv(rows), encoding="utf-8", newline="")
    assert read_frame(path).equals(data)


def test_a_frame_and_a_part_of_one_give_their_rows_back() -> None:
    rows = [row(suspect=True, timed=Attempt.DONE, device_us=2.0, samples=10), row("triton", error_ratio=math.inf)]
    data = frame(rows, {"device": {"name": "D"}})
    assert rows_of(data) == rows
    part = data[data["implementation"] == "triton"]
    assert rows_of(part) == rows[1:]
    assert part.attrs == {"environment": {"device": {"name": "D"}}}


def test_a_notebook_shows_whole_rows_as_the_terminal_does() -> None:
    data = frame([row("<b>", device_us=2.0), row("triton", status="wrong", reason="value: at [0]")])
    shown = data._repr_html_()
    assert shown.startswith("<pre")
    assert "&lt;b&gt;" in shown
    assert " 1  value: at [0]" in shown
    for plain in (data[["case", "status"]], data.head(0)):
        assert "<table" in plain._repr_html_()
    many = frame([replace(row(), case=f"M={size},N=1,K=1") for size in range(30)])
    assert "M=7" not in many._repr_html_()
