"""The program that tries public problems."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from suite.custom.truth import RandomReferenceError
from validation import brought
from validation.brought import judged

ROOT = Path(__file__).resolve().parents[2]

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


@pytest.mark.slow(seconds=8)
@pytest.mark.thorough
def test_a_part_takes_its_share_and_prints_the_reason(tmp_path: Path) -> None:
    for index, text in enumerate([PROBLEM.format(rows=16), "", "raise RuntimeError('no')"]):
        (tmp_path / f"{index}.py").write_text(text)
    command = [sys.executable, "-m", "validation.brought", "kernelbench", str(tmp_path), "--part", "0/2"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "0.py  ok"
    assert said[1].startswith("2.py  refused: ")
    assert said[2:] == ["1 ok, 1 refused"]


def test_a_problem_that_draws_random_numbers_is_tried_in_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(PROBLEM.format(rows=4096).replace("torch.relu(x) + 1", "x + torch.randn(1)"))
    tried: list[str] = []
    monkeypatch.setattr(brought, "judged", lambda *given: tried.append(given[1].label) or judged(*given))
    with pytest.raises(RandomReferenceError, match="does it draw random numbers"):
        brought.attempt("kernelbench", path, torch.device("cpu"), small=True)
    assert len(tried) == 1


def test_even_sizes_are_halved_down_to_the_cap() -> None:
    assert "rows = 16\n" in brought.cut(PROBLEM.format(rows=4096), 16)
    text = PROBLEM.format(rows=4096) + "batch_size = 64"
    assert brought.cut(text, 2, "batch_size") == brought.cut(text, 1 << 62).replace("batch_size = 64", "batch_size = 2")
    assert brought.halved(24, 8) == 6
    assert brought.halved(25, 8) == 25
