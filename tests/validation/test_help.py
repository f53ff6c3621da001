"""A program of validation/ that is asked for help, or given an argument by mistake, does nothing else."""

from __future__ import annotations

from suite.core.paths import ROOT


def test_every_program_parses_its_arguments() -> None:
    files = (ROOT / "validation").glob("*.py")
    programs = [path for path in files if "if __name__ ==" in path.read_text(encoding="utf-8")]
    assert len(programs) > 20
    for path in programs:
        assert "ArgumentParser(" in path.read_text(encoding="utf-8"), path
