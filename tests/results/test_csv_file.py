"""Rows as CSV: written rows are read back unchanged; a damaged table is refused or read right."""

from __future__ import annotations

import contextlib
import csv
import io
import math
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.core.errors import ResultsError, UsageError
from suite.diff.load import load
from suite.results import render, resume
from suite.results.csv_file import read_rows, to_csv
from suite.results.frame import read_frame
from suite.results.groups import cases
from suite.results.legacy import ADDED_COLUMNS, MISSING
from suite.results.row import COLUMNS, TYPES, Attempt, Mode, Row, Status, StoppedBy
from tests.results.rows import ANY_ROW, TEXTS, row


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def without(text: str, *columns: str) -> str:
    """The table `text` without some columns."""
    records = list(csv.reader(io.StringIO(text, newline="")))
    kept = [place for place, name in enumerate(records[0]) if name not in columns]
    shortened = io.StringIO(newline="")
    csv.writer(shortened).writerows([[record[place] for place in kept] for record in records])
    return shortened.getvalue()


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(ANY_ROW, min_size=1, max_size=3))
def test_rows_survive_the_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    """A column may have any text, number, enumeration or boolean of its type."""
    path = written(tmp_path_factory.mktemp("csv") / "t.csv", to_csv(rows))
    found = read_rows(path)
    assert found == rows
    assert to_csv(found) == to_csv(rows)
    for before, after in zip(rows, found, strict=True):
        for name in COLUMNS:
            assert type(getattr(after, name)) is type(getattr(before, name)), name


def test_a_table_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """Spreadsheets write such a mark."""
    rows = [row("torch", reason="a \N{GREEK SMALL LETTER MU}")]
    assert read_rows(written(tmp_path / "t.csv", b"\xef\xbb\xbf" + to_csv(rows).encode())) == rows


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'=1", "''@a", "'quoted'", "'", "a=1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_is_a_formula_to_a_spreadsheet(text: str, tmp_path: Path) -> None:
    table = to_csv([row("torch", reason=text, remarks=text, error_ratio=-1.0)])
    header, record = csv.reader(io.StringIO(table, newline=""))
    for name in ("reason", "remarks"):
        assert record[header.index(name)][:1] not in tuple("=+-@\t\r"), name
    assert record[header.index("error_ratio")] == "-1.0", "a number stays one"
    (found,) = read_rows(written(tmp_path / "t.csv", table))
    assert (found.reason, found.remarks) == (text, text)


def test_a_table_of_this_version_may_lack_columns_that_came_later(tmp_path: Path) -> None:
    rows = [row("torch", killed_from_outside=True)]
    found = read_rows(written(tmp_path / "t.csv", without(to_csv(rows), *ADDED_COLUMNS)))
    assert found == [row("torch")]


GOOD = to_csv(
    [row("torch", device_us=1.5, samples=7, reason='a "word", and\nmore'), row("triton", error_ratio=math.inf)]
)


def damaged(data: st.DataObject, damage: str) -> bytes:
    """`GOOD` after one kind of damage at a random place."""
    text = GOOD.encode()
    place = data.draw(st.integers(0, len(text)))
    noise = data.draw(st.binary(max_size=20))
    if damage == "cut":
        return text[:place]
    if damage == "only noise":
        return noise
    if damage in ("noise", "overwritten"):
        return text[:place] + noise + text[place + (len(noise) if damage == "overwritten" else 0) :]
    records = list(csv.reader(io.StringIO(GOOD, newline="")))
    if damage == "value":
        value = data.draw(TEXTS | st.sampled_from(["nan", "-inf", "1e999", "1_000", "0x10", "٣", " 5", "None", "True"]))
        records[1][data.draw(st.integers(0, len(COLUMNS) - 1))] = value
    else:
        order = data.draw(st.permutations(range(len(COLUMNS))))
        records = [[record[i] for i in order] for record in records]
    table = io.StringIO(newline="")
    csv.writer(table).writerows(records)
    return table.getvalue().encode()


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(["cut", "noise", "overwritten", "shuffled", "value", "only noise"]))
def test_a_damaged_table_is_refused_or_read_right(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, damage: str
) -> None:
    """Either `ResultsError`, or rows whose values have the types of their columns."""
    path = written(tmp_path_factory.mktemp("csv") / "matmul.csv", damaged(data, damage))
    rows, message = list[Row](), ""
    try:
        rows = read_rows(path)
    except ResultsError as error:
        message = str(error)
        assert str(path) in message
        assert "\n" not in message
    if not message:
        assert damage != "shuffled" or to_csv(rows) == GOOD
        for found in rows:
            for name in COLUMNS:
                assert isinstance(getattr(found, name), get_args(TYPES[name]) or TYPES[name]), name
        render.markdown(rows, {})
        for group in cases(rows):
            render.case_lines(group, 80)
    for read in (lambda: load(path), lambda: resume.find(path.parent, ["matmul"], {})):
        with contextlib.suppress(ResultsError, UsageError):
            read()


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "operation,case\n"], ids=["empty", "other", "older"])
def test_a_file_that_is_no_table_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(ResultsError, match=r"t\.csv: not a "):
        read_rows(written(tmp_path / "t.csv", text))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "fine"),
        ("status", ""),
        ("execution", "fast"),
        ("stopped_by", "chance"),
        ("timed", "maybe"),
        ("compiled", "yes"),
        ("clocks_lowered", "no"),
        ("suspect", "True"),
    ],
)
def test_an_unknown_value_is_refused_with_the_number_of_its_row(tmp_path: Path, column: str, value: str) -> None:
    records = list(csv.reader(io.StringIO(GOOD, newline="")))
    records[2][records[0].index(column)] = value
    table = io.StringIO(newline="")
    csv.writer(table).writerows(records)
    with pytest.raises(ResultsError, match=rf"t\.csv: not a .* or a damaged one: row 2: {column} is {value!r}"):
        read_rows(written(tmp_path / "t.csv", table.getvalue()))


def test_a_table_that_lacks_only_some_of_the_new_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="not a results table of this version: no column suspect"):
        read_rows(written(tmp_path / "t.csv", without(GOOD, "suspect")))
    assert [found.implementation for found in read_rows(written(tmp_path / "t.csv", without(GOOD, *MISSING)))] == [
        "torch",
        "triton",
    ]


def test_enumerations_and_booleans_are_plain_words(tmp_path: Path) -> None:
    text = to_csv(
        [
            row(
                execution=Mode.EMULATED,
                status=Status.OK,
                stopped_by=StoppedBy.BUDGET,
                timed=Attempt.FAILED,
                compiled=Attempt.NOT_TRIED,
                clocks_lowered=True,
                suspect=False,
            )
        ]
    )
    (record,) = csv.DictReader(io.StringIO(text, newline=""))
    assert [record[name] for name in ("execution", "status", "stopped_by")] == ["emulated", "ok", "budget"]
    assert [record[name] for name in MISSING] == ["failed", "", "yes", ""]


def test_the_columns_of_earlier_versions_keep_their_places() -> None:
    assert COLUMNS[:8] == ("operation", "case", "dtype", "precision", "implementation", "execution", "status", "reason")
    assert COLUMNS[-len((*MISSING, *ADDED_COLUMNS)) :] == (*MISSING, *ADDED_COLUMNS)


def test_each_dimension_and_option_has_a_column(tmp_path: Path) -> None:
    cases = {
        "B=1,H=2,H_kv=2,S_q=3,S_k=4,D=8,causal": ("yes", "normal"),
        "B=1,H=2,H_kv=2,S_q=3,S_k=4,D=8,inputs=nan": ("", "nan"),
    }
    rows = [Row("attention", case, "float16", "ieee", "torch", bytes=5, flops=2**60) for case in cases]
    path = written(tmp_path / "t.csv", to_csv(rows))
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [(each["S_k"], each["causal"], each["inputs"]) for each in found] == [
        ("4", *values) for values in cases.values()
    ]
    assert read_rows(path) == rows
    table = read_frame(path)
    assert list(table["D"]) == [8, 8]
    assert list(table["flops"]) == [2**60, 2**60]
    assert not [name for name in table.columns if hasattr(type(table), name)], "no name of pandas' own"


def test_a_column_of_a_frame_has_one_type(tmp_path: Path) -> None:
    rows = [Row("sum", case, "float32", "ieee", "torch") for case in ("M=2,N=3", "M=2,N=3,axis=0")]
    table = read_frame(written(tmp_path / "t.csv", to_csv(rows)))
    assert list(table["axis"]) == ["all", "0"]
    assert list(table["M"]) == [2, 2]


def test_a_dimension_t_is_none_of_pandas(tmp_path: Path) -> None:
    rows = [Row("lstm", "T=5,B=2", "float16", "ieee", "torch")]
    assert list(read_frame(written(tmp_path / "t.csv", to_csv(rows)))["T_"]) == [5]


def test_columns_with_names_of_older_tables_are_read(tmp_path: Path) -> None:
    said = row(remarks="a", execution=Mode.EMULATED)
    text = to_csv([said])
    head, _, body = text.partition("\n")
    older = head.replace("remarks", "flags").replace("execution", "mode")
    assert read_rows(written(tmp_path / "t.csv", f"{older}\n{body}")) == [said]
