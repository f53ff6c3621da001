"""The program that judges folders of kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation import verdicts

REFERENCE = """
import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["N=100"]
dtypes = ("float32",)

def reference(x: Float[Tensor, "N"]) -> Tensor:
    return torch.relu(x)
"""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_files_are_brought_as_what_they_are(tmp_path: Path) -> None:
    problem = "class Model: pass\ndef get_inputs(): return []\n"
    write(tmp_path, half_ref=REFERENCE, half_mine="", pool=problem, pool_fast="", own="def sum(x): ...", notes="X = 1")
    runs = {
        run.what[0]: (Path(run.what[1]).name, [each.name for each in run.files]) for run in verdicts.runs_of(tmp_path)
    }
    assert runs == {
        "--reference": ("half_ref.py", ["half_mine.py"]),
        "--kernelbench": ("pool.py", ["pool_fast.py"]),
        "--op": ("sum", ["own.py"]),
    }


@pytest.mark.slow(seconds=20)
@pytest.mark.thorough
def test_each_file_has_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = "def half_ref(x):\n    return x.clamp(min=0)\n"
    write(tmp_path, half_ref=REFERENCE, half_right=right, half_wrong=right.replace("min=0", "min=0.5"))
    assert verdicts.main([str(tmp_path), "--device", "cpu", "--expect", "ok"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "half_right.py  ok"
    assert said[1].startswith("half_wrong.py  wrong  value: at ")
    assert said[2:] == ["1 ok; 1 wrong"]
