"""Runs that are not compared: other devices and conditions, damaged tables and records."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from suite.core.errors import UsageError
from suite.diff.judge import judge
from suite.results.csv_file import to_csv
from suite.results.row import COLUMNS
from tests.diff.rows import H200, as_side, assert_one_error, folder, judged, printed, row, run


def test_different_devices_are_refused() -> None:
    a100 = {"device": {"type": "cuda", "name": "NVIDIA A100\n"}}
    with pytest.raises(UsageError, match=r"BASE was measured on NVIDIA H200, NEW on NVIDIA A100; a diff.* the code$"):
        judge(as_side([row()]), as_side([row()], a100), 0.03)


def test_a_gpu_is_identified_by_name_and_a_host_matters_to_its_own_rows_only() -> None:
    base = as_side([row(device="cuda:0"), row("numpy", device="cpu")])
    new = as_side([row(device="cuda:3"), row("numpy", device="cpu")], {**H200, "host": {"name": "another CPU"}})
    changes = judge(base, new, 0.03).changes
    assert [change.verdict for change in changes] == ["SAME", "UNTIMED"]
    assert changes[1].notes == ("on a CPU in BASE, on another CPU in NEW",)
    names = [line.split("  ")[0] for line in printed(judge(base, new, 0.03))]
    assert names.index("numpy on cpu") < names.index("triton")
    assert [change.verdict for change in judge(base, base, 0.03).changes] == ["SAME", "SAME"]
    cpu = {"device": {"type": "cpu", "name": "a CPU"}}
    there, here = (as_side([row(device="cpu")], {**cpu, "host": {"name": name}}) for name in ("there", "here"))
    found = judge(there, here, 0.03)
    assert found.counts["SAME"] == 1
    assert "on cpu" not in "".join(printed(found))


@pytest.mark.parametrize(("what", "then", "now"), [("recorder", "cupti", "wall"), ("cache", "cold", "warm")])
def test_different_conditions_are_refused_by_name(what: str, then: str, now: str) -> None:
    names = ["triton", "cuda", "cuda/tiled", "numpy"]
    base, new = ([row(name, **{what: value}) for name in names] for value in (then, now))
    case = "matmul M=64,N=64,K=64 float32 ieee"
    match = f"{what} is {then} in BASE and {now} in NEW for {case} triton, {case} cuda, {case} cuda/tiled and 1 more"
    with pytest.raises(UsageError, match=re.escape(match)):
        judged(base, new)
    untimed = [replace(r, device_us=None, **{what: ""}) for r in new]
    assert {change.verdict for change in judged(base, untimed).values()} == {"UNTIMED"}, "no times, no conditions"


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(UsageError, match="have no row in common"):
        judged([row("cuda")], [row("triton")])


@pytest.mark.parametrize("threshold", ["0", "1", "-0.03", "3", "nan", "inf", "wide"])
def test_a_threshold_outside_0_and_1_is_refused(
    threshold: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path / "a", [row()])
    assert run(monkeypatch, "diff", path, path, "--threshold", threshold) == 2
    assert capsys.readouterr().out == ""


GOOD = to_csv([row("torch", 100.0, 0.01), row("triton", 123.0, 0.01)])


DAMAGED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "No columns to parse"),
    "other": ("a,b\n1,2\n", "no column operation"),
    "binary": (bytes(range(256)) * 4, "t.csv"),
    "unclosed": (GOOD + '"', "t.csv"),
    "cut": (GOOD[: GOOD.rindex("cold")], f"row 2: {COLUMNS[-1]} is missing"),
    "more-fields": (GOOD + "x," * 99, "t.csv"),
    "text": (GOOD.replace("123.0", "fast"), "row 2: device_us is 'fast', which nothing measures"),
    "negative": (GOOD.replace("123.0", "-123.0"), "row 2: device_us is -123.0, which nothing measures"),
    "infinite": (GOOD.replace("123.0", "inf"), "row 2: device_us is inf, which nothing measures"),
    "interval": (GOOD.replace("123.0", "99.0"), "row 2: device_us is 99.0, outside its interval from 121.77 to 124.23"),
    "status": (GOOD.replace(",ok,", ",\x1b[31mfine,"), "row 1: status is '\\x1b[31mfine'"),
    "twice": (GOOD + GOOD.splitlines()[1] + "\n", "row 3: there is another row like it"),
}


@pytest.mark.parametrize(("text", "complaint"), DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("side", ["base", "new"])
def test_a_damaged_table_is_one_line_and_exit_2(
    text: str | bytes,
    complaint: str,
    side: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = folder(tmp_path / "good", [row()])
    damaged = tmp_path / "t.csv"
    damaged.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run(monkeypatch, "diff", *((damaged, good) if side == "base" else (good, damaged))) == 2
    assert_one_error(capsys, complaint)


def test_a_path_without_results_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = folder(tmp_path / "good", [row()])
    assert run(monkeypatch, "diff", good, tmp_path / "nothing") == 2
    assert_one_error(capsys, "nothing: no such file or folder")
    assert run(monkeypatch, "diff", good, tmp_path / ("x" * 300)) == 2
    assert_one_error(capsys, "cannot be read: File name too long")
    (tmp_path / "bare").mkdir()
    assert run(monkeypatch, "diff", tmp_path / "bare", good) == 2
    assert_one_error(capsys, "bare: no results here: the folder holds no .csv")
    (tmp_path / "bare" / "latest").mkdir()
    assert run(monkeypatch, "diff", tmp_path / "bare", good) == 2
    assert_one_error(capsys, f"holds no .csv; its last run is {tmp_path / 'bare' / 'latest'}")
    (tmp_path / "bare" / "folder.csv").mkdir()
    assert run(monkeypatch, "diff", tmp_path / "bare", good) == 2
    assert_one_error(capsys, "folder.csv: not a readable results table")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"device": 3}', '{"device": {"name": null}}', "[" * 100_000, b"\xff\xfe"]
)
def test_a_damaged_environment_is_one_line_and_exit_2(
    text: str | bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = folder(tmp_path / "good", [row()]), folder(tmp_path / "bad", [row()])
    (bad / "environment.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run(monkeypatch, "diff", good, bad) == 2
    assert_one_error(capsys, "environment.json: not a readable environment record")
