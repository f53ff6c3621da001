"""The output of `python -m suite diff`, and its exit status."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from suite.cli.console import print_lines
from suite.diff import render, table
from suite.diff.change import Diff, Verdict
from suite.diff.judge import judge
from suite.results.row import Row, Status
from tests.diff.rows import H200, as_side, folder, ranked, row, run
from tests.diff.rows import printed as shown_lines


def test_exit_status_is_0_or_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = folder(tmp_path / "base", [row(us=100.0), replace(row("cuda"), operation="sigmoid")])
    for name, us, status in (("same", 101.0, 0), ("faster", 50.0, 0), ("slower", 150.0, 3)):
        new = folder(tmp_path / name, [row(us=us), replace(row("cuda"), operation="sigmoid")])
        assert run(monkeypatch, "diff", base, new) == status
        assert name.upper() in capsys.readouterr().out
        assert run(monkeypatch, "diff", base, new, "--threshold", "0.9") == 0
        assert run(monkeypatch, "diff", base / "matmul.csv", new / "matmul.csv") == status
    broken = folder(tmp_path / "broken", [row(us=None, status="error", reason="died"), row("numpy", 1.0)])
    capsys.readouterr()
    assert run(monkeypatch, "diff", base, broken) == 3
    printed = capsys.readouterr()
    assert "triton          BROKEN     100.0  1\n" in printed.out
    assert " 1  ok -> error: died\n" in printed.out
    assert "only in BASE: sigmoid M=64,N=64,K=64 float32 ieee: cuda\n" in printed.out
    assert printed.err == "1 rows in both: 1 BROKEN; 1 only in BASE; 1 only in NEW; threshold 3%\n"
    assert run(monkeypatch, "diff", broken, base) == 0
    assert "FIXED" in capsys.readouterr().out


def test_the_worst_comes_last_in_a_case_and_among_the_cases() -> None:
    times = {"a": 200.0, "b": 100.0, "c": 50.0, "d": 103.0}
    base = [row(name, 100.0, 0.001, case=case) for case in ("M=1", "M=2", "M=3") for name in times]
    new = [
        row(name, us if case == "M=2" else 100.0, 0.001, case=case)
        for case in ("M=1", "M=2", "M=3")
        for name, us in times.items()
    ]
    lines = list(filter(None, shown_lines(judge(as_side(base), as_side(new), 0.03))))
    assert [line.split(";")[0] for line in lines if "; speed" in line] == [
        *("matmul M=3 fp32", "matmul M=1 fp32", "matmul M=2 fp32")
    ]
    verdicts = [line.split()[1] for line in lines if line.split()[0] in times]
    assert verdicts[-4:] == ["SAME", "FASTER", "AMBIGUOUS", "SLOWER"]


def test_a_line_for_a_log() -> None:
    times = {"a": 200.0, "b": 100.0, "c": 50.0, "d": 103.0}
    base = [row(name, 100.0, 0.001) for name in times]
    found = judge(as_side(base), as_side([row(name, us, 0.001) for name, us in times.items()]), 0.03)
    assert render.plain_line(found, found.changes[0]) == (
        "SLOWER     matmul M=64,N=64,K=64 float32 ieee  a  "
        "ratio 0.5000 (0.4993 to 0.5007)  us 100.0 -> 200.0  by device_us  takes at least 2.00x as long"
    )


def test_an_unknown_device_and_other_changes_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, bare = folder(tmp_path / "base", [row()]), folder(tmp_path / "bare", [row()], None)
    assert run(monkeypatch, "diff", base, bare) == 0
    assert capsys.readouterr().err == (
        "the device of NEW is not known: no environment.json beside its tables\n1 rows in both: 1 SAME; threshold 3%\n"
    )
    other = {**H200, "packages": {"torch": "2.12.0", "triton": "3.7.1"}, "git": {"commit": "abc"}}
    new = folder(tmp_path / "new", [row()], other)
    assert run(monkeypatch, "diff", base, new) == 0
    assert "also changed: torch 2.11.0 -> 2.12.0, git commit none -> abc, triton none -> 3.7.1\n" in (
        capsys.readouterr().err
    )


def test_json_is_one_document_with_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = [*ranked({"torch": 100.0, "triton": 110.0}, 0.01), row("cuda"), row("numpy", 1e300)]
    new = [*ranked({"torch": 100.0, "triton": 220.0}, 0.01), row("numpy", 1e-300), row("cuda/tiled")]
    new[0] = replace(new[0], device_us_low=None)
    paths = folder(tmp_path / "base", base), folder(tmp_path / "new", new)
    assert run(monkeypatch, "diff", *paths, "--json") == 3
    printed = capsys.readouterr()
    document = json.loads(printed.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert printed.err.count("\n") == 1
    assert set(document) == {
        "base",
        "new",
        "threshold",
        "counts",
        "exit_status",
        "remarks",
        "rows",
        "only_in_base",
        "only_in_new",
    }
    assert document["base"] == {"path": str(paths[0]), "device": "NVIDIA H200"}
    assert document["threshold"] == 0.03
    assert document["exit_status"] == 3
    assert document["counts"] == {**dict.fromkeys(list(Verdict), 0), "AMBIGUOUS": 1, "SLOWER": 1, "FASTER": 1}
    assert [r["implementation"] for r in document["only_in_base"]] == ["cuda"]
    assert [r["implementation"] for r in document["only_in_new"]] == ["cuda/tiled"]
    rows = {r["implementation"]: r for r in document["rows"]}
    assert set(rows["triton"]) == {
        *("operation", "case", "dtype", "precision", "implementation", "device"),
        *("verdict", "evidence", "control", "ratio", "ratio_low", "ratio_high", "base", "new", "notes"),
    }
    assert rows["triton"]["verdict"] == "SLOWER"
    assert (rows["triton"]["evidence"], rows["triton"]["control"]) == ("vs_best", "torch")
    assert rows["triton"]["ratio_low"] < rows["triton"]["ratio"] < rows["triton"]["ratio_high"] < 1 / 1.03
    assert rows["triton"]["ratio"] == pytest.approx(0.5)
    assert rows["triton"]["new"]["device_us"] == 220.0
    assert rows["torch"]["verdict"] == "AMBIGUOUS"
    assert rows["torch"]["ratio"] == 1
    assert rows["torch"]["ratio_low"] is rows["torch"]["ratio_high"] is None
    assert run(monkeypatch, "diff", *paths, "--json", "--markdown") == 2


EVIL = "x|y `c` <img src=x> [red]*b*[/red] [a](b)\x1b[31m\nnext\u202e"


def evil() -> Diff:
    base = [row(EVIL, 100.0, config=EVIL), row(us=100.0), row("gone" + EVIL)]
    new = [row(EVIL, 200.0, remarks=EVIL), row(us=100.0)]
    return judge(as_side(base), as_side(new), 0.03)


def test_text_cannot_become_markdown() -> None:
    text = render.markdown(evil())
    assert "x\\|y \\`c\\` &lt;img src=x&gt; \\[red\\]\\*b\\*" in text
    assert "<img" not in text
    assert not re.search(r"[\x1b\u202e]", text)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {len(render.HEADS) + 1}
    assert len(table) == 2 * 3, "head, rule and one row: what changed, and what is the same"
    assert text.index("SLOWER    |") < text.index("<details><summary>1 SAME</summary>\n\n|") < text.index("gonex")


def test_text_cannot_become_rich_markup_or_steer_a_terminal() -> None:
    from rich.console import Console

    screen, found = io.StringIO(), evil()
    print_lines(Console(file=screen, width=400, force_terminal=True, color_system=None), table.lines(found, 400))
    shown = screen.getvalue()
    assert "[red]*b*[/red]" in shown
    assert "SLOWER" in shown
    for text in (shown, *(render.plain_line(found, change) for change in found.changes)):
        assert "\u202e" not in text
        assert "\x1b[31m" not in text


SNAPSHOTS = Path(__file__).with_name("terminal")
CASES = ("M=4096,N=4096,K=4096", "M=16,N=4096,K=4096,layout=nt")
US = {"torch": 178.9, "triton": 186.4, "cuda/warp_specialized": 177.1, "cuda": 3504.0}
AFTER = {"torch": 178.2, "triton": 372.8, "cuda/warp_specialized": 60.2, "cuda": 3511.0}


def sides() -> tuple[list[Row], list[Row]]:
    """Two runs of two cases, with long names, a change of each kind, notes, and rows in one run alone."""
    then, now = ([replace(row, case=case) for case in CASES for row in ranked(us, 0.005)] for us in (US, AFTER))
    now[1] = replace(now[1], config="BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, GROUP_M=8, num_warps=8, num_stages=4")
    now[5] = replace(ranked({**AFTER, "triton": 192.0}, 0.005)[1], case=CASES[1])
    now[7] = replace(
        now[7], status=Status.WRONG, reason="value: at [0, 7] got 1.5, expected 1.25 +- 0.01", device_us=None
    )
    return [*then, row("jax")], [*now, row("cuda/tiled")]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_tables_look_as_they_should(width: int) -> None:
    then, now = sides()
    lines = shown_lines(judge(as_side([*then, row()]), as_side([*now, row()]), 0.03), width)
    assert max(map(len, lines)) <= width
    assert "\n".join(lines) + "\n" == (SNAPSHOTS / f"{width}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [None, "80"], ids=["piped", "80"])
def test_a_pipe_gets_the_table_of_120_columns_or_as_many_as_columns_says(
    columns: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    then, now = sides()
    paths = folder(tmp_path / "then", [*then, row()]), folder(tmp_path / "now", [*now, row()])
    assert run(monkeypatch, "diff", *paths) == 3
    assert capsys.readouterr().out == (SNAPSHOTS / f"{columns or 120}.txt").read_text(encoding="utf-8")


def test_markdown_on_stdout_is_only_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path / "a", [row()])
    assert run(monkeypatch, "diff", path, path, "--markdown") == 0
    assert capsys.readouterr().out.startswith(
        "Speed of NEW over BASE on NVIDIA H200. 1 rows in both: 1 SAME; threshold"
    )
