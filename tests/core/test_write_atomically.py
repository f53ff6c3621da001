"""`write_atomically`: a file is replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from suite.core.errors import ResultsError
from suite.core.files import write_atomically


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    write_atomically(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        ResultsError, match=r"cannot write .*t\.csv: No space left on device; what was there is unchanged"
    ):
        write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left behind"


def test_a_written_file_can_be_read_by_others(tmp_path: Path) -> None:
    write_atomically(tmp_path / "t.csv", "x")
    assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == 0o644
