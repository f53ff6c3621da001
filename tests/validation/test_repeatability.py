"""The program that compares two runs: its verdict, and one whole run on a committed result."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.core.paths import ROOT
from validation.repeatability import Pair, judge, main


def pair(difference: float) -> Pair:
    return Pair("matmul", "M=1", "float32", "ieee", "triton", 20.0, 20.0, 1.0, 1.0 + difference, difference)


@pytest.mark.parametrize(
    ("differences", "passes"),
    [
        ([0.0] * 20, True),
        ([0.02] + [0.0] * 19, True),
        ([0.02, 0.02] + [0.0] * 18, False),
        ([-0.031] + [0.0] * 39, False),
        ([], False),
    ],
    ids=["equal", "5% differ", "10% differ", "one differs much", "no rows"],
)
def test_the_verdict(differences: list[float], passes: bool) -> None:
    assert judge([pair(each) for each in differences], {"SAME": len(differences)}).passed is passes


def test_a_run_agrees_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(ROOT / "results" / "nvidia-h200")
    assert main([folder, folder, "--out", str(tmp_path)]) == 0
    assert "100.0% within 1%" in capsys.readouterr().out
    assert "# Two runs on NVIDIA H200" in (tmp_path / "repeatability.md").read_text(encoding="utf-8")
    assert (tmp_path / "repeatability.csv").read_text(encoding="utf-8").startswith("operation,case,")
