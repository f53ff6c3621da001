"""`history`: lines over runs; damaged runs are left out and named; sparklines do not exaggerate noise."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from diff.rows import assert_one_error, folder
from diff.rows import run as suite
from report.rows import RECORD, row, square

from suite.core.errors import UsageError
from suite.core.files import write_atomically
from suite.core.paths import ROOT
from suite.history.load import Filter, load_history, timed_repeatedly
from suite.history.plot import plots_of
from suite.history.render import lines_of, sparkline
from suite.results.row import Row

SPEEDS = (0.8, 0.9, 1.0, 1.1)


def rows_of(number: int) -> list[Row]:
    """A run in which `cuda/wgmma` is as fast as `SPEEDS` says, and `triton` always the same."""
    return [row("torch"), row("cuda/wgmma", SPEEDS[number]), row("triton", 0.95)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for number in range(len(SPEEDS)):
        date = f"2026-11-{10 + number}T12:00:00Z"
        folder(tmp_path / "runs" / f"2026-11-{10 + number}-matmul", rows_of(number), {**RECORD, "date_utc": date})
    return tmp_path


def test_a_line_is_followed_over_all_runs(results: Path) -> None:
    (case,) = load_history(results, Filter(), pytest.fail)
    lines = {line.implementation: line for line in case.lines}
    assert lines["cuda/wgmma"].ratios == list(SPEEDS)
    assert [run.date[:10] for run in case.runs] == [f"2026-11-{10 + number}" for number in range(4)]
    assert load_history(results / "runs", Filter(), pytest.fail) == [case]


def test_the_table(results: Path) -> None:
    text = [line.plain for line in lines_of(load_history(results, Filter(), pytest.fail), 80)]
    assert text == [
        "matmul M=N=K=1024 bf16: 4 runs, 2026-11-10 to 2026-11-13",
        "implementation  runs  vs best vendor  first   last  device us  last us  change",
        "torch              4  ▄▄▄▄             1.00   1.00  ▄▄▄▄         100.0   +0.0%",
        "cuda/wgmma         4  ▁▃▅▇            0.800   1.10  ▇▅▃▁         90.91  -18.2%",
        "triton             4  ▄▄▄▄            0.950  0.950  ▄▄▄▄         105.3   +0.0%",
        "",
    ]
    assert "\n".join(text[:-1]) in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_other_conditions_are_other_lines(results: Path) -> None:
    folder(results / "runs" / "2026-11-20-matmul", [row("torch", cache="warm"), row("triton", 0.9, cache="warm")])
    found = load_history(results, Filter(), pytest.fail)
    assert [(each.measured, len(each.runs)) for each in found] == [("", 4), ("warm", 1)]
    assert [each.measured for each in timed_repeatedly(found)] == [""]


def test_noisy_times_and_runs_without_the_line_are_gaps(results: Path) -> None:
    noisy = [row("torch"), row("cuda/wgmma", 1.1, noisy=True)]
    folder(results / "runs" / "2026-11-20-matmul", noisy)
    folder(results / "runs" / "2026-11-21-matmul", [row("torch"), row("cuda/wgmma", 1.1)])
    (case,) = load_history(results, Filter(implementations=("cuda*",)), pytest.fail)
    text = lines_of([case], 120)[2].plain
    assert "▁▃▅▇ ▇" in text
    assert case.lines[0].ratios == [*SPEEDS, 1.1]


def test_runs_of_another_card_are_left_out(results: Path) -> None:
    """Times of two cards are no history of one."""
    other = {**RECORD, "device": {"type": "cuda", "name": "NVIDIA A100"}}
    folder(results / "runs" / "2026-11-09-matmul", rows_of(0), other)
    said: list[str] = []
    (case,) = load_history(results, Filter(), said.append)
    assert len(case.runs) == 4
    (line,) = said
    assert line.endswith("2026-11-09-matmul/matmul.csv: measured on NVIDIA A100, the last run on NVIDIA H200")


def test_an_empty_folder_of_runs_says_what_writes_them(tmp_path: Path) -> None:
    (tmp_path / "runs" / "2026-11-09-matmul").mkdir(parents=True)
    with pytest.raises(UsageError, match="no runs here; `compare` without --out and `nightly` write them"):
        load_history(tmp_path, Filter(), pytest.fail)


def test_damaged_folders_are_named_and_left_out(results: Path, capsys: pytest.CaptureFixture[str],
                                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    runs = results / "runs"
    (runs / "2026-11-14-empty").mkdir()
    (runs / "a file").write_text("no run")
    folder(runs / "2026-11-15-cut", square())
    (runs / "2026-11-15-cut" / "matmul.csv").write_text("operation,case\nmatmul")
    folder(runs / "2026-11-16-record", square())
    (runs / "2026-11-16-record" / "environment.json").write_text("{")
    folder(runs / "2026-11-17-bytes", square())
    (runs / "2026-11-17-bytes" / "matmul.csv").write_bytes(b"\xff\x00\xff")
    assert suite(monkeypatch, "history", results, "--case", "M=1024,*") == 0
    printed = capsys.readouterr()
    assert "cuda/wgmma         4 " in printed.out
    assert printed.err.count("left out: ") == 3
    for name in ("2026-11-15-cut", "2026-11-16-record", "2026-11-17-bytes"):
        assert name in printed.err


def test_files_have_every_digit_and_every_case(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(results / "runs" / "2026-11-20-matmul", square(512))
    assert suite(monkeypatch, "history", results, "--format", "csv,svg", "--impl", "cuda*", "--dtype", "bf16") == 0
    out = results / "history"
    assert capsys.readouterr().out.splitlines()[-2:] == [str(out / "history.csv"), str(out / "history-matmul.svg")]
    with (out / "history.csv").open() as file:
        records = list(csv.DictReader(file))
    ratios = [float(each["vs_best"]) for each in records if each["implementation"] == "cuda/wgmma"]
    assert ratios == [*SPEEDS, 1.1]
    assert records[0]["run"] == "2026-11-10-matmul"


def test_a_plot_shows_gaps_as_gaps(results: Path) -> None:
    write_atomically(results / "runs" / "2026-11-20-matmul" / "none.txt", "no table")
    folder(results / "runs" / "2026-11-21-matmul", [row("torch"), row("cuda/wgmma", 1.1, noisy=True)])
    (plot,) = plots_of(load_history(results, Filter(), pytest.fail))
    (panel,) = plot.data["panels"]
    assert panel["lines"]["cuda/wgmma"] == [*SPEEDS, None]
    assert panel["lines"]["triton"][-1] is None
    assert panel["runs"][0] == "11-10 12:00"


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0, 1.001, 0.999], "▄▄▄"), ([1.0, 2.0], "▁▇"), ([1.0, None, 2.0, None], "▁ ▇"), ([None], ""), ([0.0], "▁")],
    ids=["noise", "range", "gaps", "nothing", "zero"],
)
def test_sparkline(values: list[float | None], expected: str) -> None:
    assert sparkline(values) == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--impl", "torch", "--case", "M=9*"], "--case: unknown 'M=9*'; valid is"),
        (["--format", "pdf"], "unknown 'pdf'"),
    ],
)
def test_refusals(results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                  arguments: list[str], complaint: str) -> None:  # fmt: skip
    assert suite(monkeypatch, "history", results, *arguments) == 2
    assert complaint in capsys.readouterr().err
    assert suite(monkeypatch, "history", results / "none") == 2
    assert_one_error(capsys, "no runs here")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--op", "matmull"], "error: --op: unknown 'matmull'; valid is matmul; did you mean matmul?"),
        (["--impl", "triton,cuda/wgma"], "unknown 'cuda/wgma'; valid are torch, cuda/wgmma, triton; did you mean"),
        (["--dtype", "fp32"], "error: --dtype: unknown 'float32'; valid is bfloat16"),
        (["--format", "pgn"], "error: --format: unknown 'pgn'; valid are csv, png, svg; did you mean png"),
    ],
)
def test_a_name_that_no_run_has_is_refused(
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    results: Path,
) -> None:
    assert suite(monkeypatch, "history", results, *arguments) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["csv", "svg"])
def test_a_file_of_someone_else_is_left_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path
) -> None:
    for _ in range(2):
        assert suite(monkeypatch, "history", results, "--format", kind) == 0
    path = next((results / "history").iterdir())
    path.write_text("mine", encoding="utf-8")
    assert suite(monkeypatch, "history", results, "--format", kind) == 2
    assert f"{path} is not " in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "mine"
