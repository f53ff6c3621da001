"""The program that tries public problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation import brought

PROBLEM = """
import torch
from torch import nn

rows = {rows}

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

def get_inputs():
    return [torch.randn(rows, 30)]

def get_init_inputs():
    return []
"""


def test_each_part_takes_its_share_and_prints_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for index in range(3):
        (tmp_path / f"{index}.py").write_text(PROBLEM.format(rows=16) if index != 2 else "raise RuntimeError('no')")
    said = []
    for part in ("0/2", "1/2"):
        monkeypatch.setattr("sys.argv", ["brought", "kernelbench", str(tmp_path), "--part", part])
        brought.main()
        said.append(capsys.readouterr().out.splitlines())
    assert said[1] == ["1.py  ok", "1 ok"]
    assert said[0][0] == "0.py  ok"
    assert said[0][1].startswith("2.py  refused: ")


def test_even_sizes_are_halved_down_to_the_cap() -> None:
    assert "rows = 16\n" in brought.cut(PROBLEM.format(rows=4096), 16)
    assert brought.halved(24, 8) == 6
    assert brought.halved(25, 8) == 25
