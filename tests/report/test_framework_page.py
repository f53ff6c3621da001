"""The page that compares ways to write a kernel, operation by operation."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import call
from diff.rows import folder
from report.rows import RECORD, failed, row, run_of

from suite import ops
from suite.core.paths import ROOT
from suite.report.framework_page import framework_page
from suite.report.load import load_runs
from suite.results.row import Row

ROWS = [
    row("torch", 1.0, dispatch_us=20.0),
    row("jax", 0.9, vendor="XLA"),
    row("jax/pallas", 0.95),
    row("triton", 0.9),
    row("triton/gluon", 1.2),
    row("torch/cudnn", 0.5, vendor="cuDNN"),
    row("triton/liger", 1.4, peer="liger-kernel"),
    failed("cuda", "unsupported", reason="no"),
    failed("torch/quack", "unavailable", peer="quack-kernels", reason="not installed; pip install '.[peers]'"),
]


def lines(tmp_path: Path, rows: list[Row], section: str) -> list[list[str]]:
    page = framework_page([run_of(tmp_path / "run", rows)])
    (part,) = [each for each in page.split("\n## ") if each.startswith(f"{section}\n")]
    table = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in (table[0], *table[2:])]


def test_each_way_has_its_fastest_row_and_the_fastest_is_bold(tmp_path: Path) -> None:
    heads, cells = lines(tmp_path, ROWS, "Large calls: device us")
    found = dict(zip(heads, cells, strict=True))
    assert found["operation"] == "matmul"
    assert found["Triton"].startswith("**")
    assert found["Triton"].endswith("(gluon)"), "a peer's row is not the suite's"
    assert found["Pallas"].endswith("(pallas)")
    assert "**" not in found["torch"] + found["XLA"] + found["Pallas"]
    assert found["torch.compile"] == "none"
    assert found["CUDA"] == "unsupported"
    assert found["other library"].endswith("(torch/cudnn)")


def test_libraries_have_their_ratio_or_the_command_that_installs_them(tmp_path: Path) -> None:
    _, liger, quack = lines(tmp_path, ROWS, "Public kernel libraries")
    assert liger[:2] == ["liger-kernel", "triton/liger"]
    assert liger[4] == "1.40 to 1.40"
    assert "pip install" in quack[5]


def test_small_and_large_calls_host_times_and_gradients_are_apart(tmp_path: Path) -> None:
    names = ("torch", "triton")
    rows = [row(name, 1.0, size) for name in names for size in (512, 4096)]
    rows += [row(name, 1.0, 2048, operation="linear_sigmoid_grad") for name in names]
    size = {
        section: lines(tmp_path / str(i), rows, section)[1][1]
        for i, section in enumerate(
            (
                "Large calls: device us",
                "Small calls: device us",
                "Small calls: host us until a call of a loop returns",
                "Large calls: device us, gradients",
            )
        )
    }
    assert [value.split("=")[-1].split()[0] for value in size.values()] == ["4096", "512", "512", "2048"]


def test_a_noisy_row_is_marked_and_not_the_fastest(tmp_path: Path) -> None:
    rows = [row("torch", 1.0), row("triton", 2.0, noisy=True, device_us_high=1e9)]
    heads, cells = lines(tmp_path, rows, "Large calls: device us")
    found = dict(zip(heads, cells, strict=True))
    assert found["Triton"].endswith("~")
    assert found["torch"].startswith("**")


def test_the_command_writes_the_page_and_replaces_no_other_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder(tmp_path / "run", ROWS, RECORD)
    for _ in range(2):
        assert call(monkeypatch, "report", run, "--frameworks", tmp_path) == 0
        assert capsys.readouterr().out.strip() == str(tmp_path / "frameworks.md")
    (tmp_path / "mine.md").write_text("mine", encoding="utf-8")
    assert call(monkeypatch, "report", run, "--frameworks", tmp_path / "mine.md") == 2
    assert (tmp_path / "mine.md").read_text(encoding="utf-8") == "mine"
    assert call(monkeypatch, "report", run, run, "--frameworks", tmp_path) == 2, "a run given twice"


def test_an_operation_is_from_the_first_run_that_has_times_of_it(tmp_path: Path) -> None:
    other = {**RECORD, "device": {**RECORD["device"], "name": "NVIDIA H100"}}
    sums = [row(name, 3.0, operation="sum") for name in ("torch", "triton")]
    runs = [folder(tmp_path / "a", ROWS, RECORD), folder(tmp_path / "b", [*ROWS, *sums], other)]
    page = framework_page(load_runs(runs))
    (part,) = [each for each in page.split("\n## ") if each.startswith("Large calls: device us\n")]
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in part.splitlines() if line.startswith("|")]
    assert [(line[0], line[2]) for line in cells[2:]] == [("sum", "H100"), ("matmul", "H200")]
    assert f"report {runs[0]} {runs[1]} --frameworks PATH" in page.replace("\\\n    ", "")
    assert page.count(" rows: ") == 2, "each run is described"


def test_an_operation_without_host_times_is_left_out_of_their_tables(tmp_path: Path) -> None:
    rows = [row(name, 1.0, dispatch_us=None) for name in ("torch", "triton")]
    page = framework_page([run_of(tmp_path / "run", rows)])
    assert "## Small calls: device us" in page
    assert "until a call of a loop returns" not in page


def test_the_committed_page_has_every_operation_with_committed_rows() -> None:
    page = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8").replace("\\", "")
    tables = [*ROOT.glob("results/nvidia*/*.csv"), *ROOT.glob("results/nvidia*/*/*/*.csv")]
    found = {name for path in tables if (name := path.stem) in ops.names()}
    assert len(found) > 40
    assert {name for name in found if f"| {name} " not in page} == set()
