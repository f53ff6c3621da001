"""The output of `python -m suite diff`, and its exit status."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from suite.diff import render
from suite.diff.change import Diff, Verdict
from suite.diff.judge import judge
from tests.diff.rows import H200, as_side, folder, ranked, row, run


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
    assert "BROKEN     matmul M=64,N=64,K=64 float32 ieee  triton  ok -> error: died\n" in printed.out
    assert "only in BASE  sigmoid M=64,N=64,K=64 float32 ieee  cuda\n" in printed.out
    assert printed.err == "1 rows in both: 1 BROKEN; 1 only in BASE; 1 only in NEW; threshold 3%\n"
    assert run(monkeypatch, "diff", broken, base) == 0
    assert "FIXED" in capsys.readouterr().out


def test_plain_lines_end_with_the_worst(tmp_path: Path) -> None:
    times = {"a": 200.0, "b": 100.0, "c": 50.0, "d": 103.0}
    base = [row(name, 100.0, 0.001) for name in times]
    found = judge(as_side(base), as_side([row(name, us, 0.001) for name, us in times.items()]), 0.03)
    lines = render.plain_lines(found)
    assert [line.split()[0] for line in lines] == ["SAME", "FASTER", "AMBIGUOUS", "SLOWER"]
    assert lines[-1] == (
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

    screen = io.StringIO()
    render.show(evil(), Console(file=screen, width=400, force_terminal=True, color_system=None))
    shown = screen.getvalue()
    assert "[red]*b*[/red]" in shown
    assert "SLOWER" in shown
    for text in (shown, "\n".join(render.plain_lines(evil()))):
        assert "\u202e" not in text
        assert "\x1b[31m" not in text
    assert len(render.plain_lines(evil())) == 3


def test_a_terminal_gets_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "200")
    path = folder(tmp_path / "a", ranked({"torch": 100.0, "triton": 110.0}))
    assert run(monkeypatch, "diff", path, path) == 0
    shown = capsys.readouterr().out
    assert "speed of NEW over BASE" in shown
    assert "95% interval" in shown
    assert "vs torch" in shown


def test_markdown_on_stdout_is_only_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder(tmp_path / "a", [row()])
    assert run(monkeypatch, "diff", path, path, "--markdown") == 0
    assert capsys.readouterr().out.startswith(
        "Speed of NEW over BASE on NVIDIA H200. 1 rows in both: 1 SAME; threshold"
    )
