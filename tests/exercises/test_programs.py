"""The programs of examples/course run emulated, and say that their times mean nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cuda_ref.build.programs import program
from suite.core.paths import ROOT

PROGRAMS = sorted((ROOT / "examples" / "course").glob("*.cu"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs_emulated(path: Path) -> None:
    done = subprocess.run([program(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "times mean nothing" in done.stdout
