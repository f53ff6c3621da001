"""The programs of examples/course run emulated, and say that their times mean nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from thinning import chosen_by

from cuda_ref.build.programs import program
from suite.core.paths import ROOT

PROGRAMS = sorted((ROOT / "examples" / "course").glob("*.cu"))


@pytest.mark.parametrize("path", chosen_by(PROGRAMS, lambda path: {path.suffix}, lambda path: path.stem))
def test_a_program_runs_emulated(path: Path) -> None:
    done = subprocess.run([program(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "times mean nothing" in done.stdout


def test_the_numbers_of_the_chapter_are_those_of_the_kept_file() -> None:
    kept = (ROOT / "results" / "nvidia-h100-80gb-hbm3" / "course" / "programs.txt").read_text(encoding="utf-8")
    chapter = (ROOT / "docs" / "learn" / "cuda" / "7_whole_gpu.md").read_text(encoding="utf-8")
    blocks = re.findall(r"\n\*\*\w+(?: memory)?\.\*\*.*?\n```\n(.*?)```", chapter, re.DOTALL)
    assert len(blocks) == len(PROGRAMS) - 1  # all but the grid of three dimensions, which measures nothing
    assert all(block in kept for block in blocks)
