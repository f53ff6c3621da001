"""Limits of this process that another process changes are put back and named."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from suite.processes.own_limits import OwnLimits

CHANGE = "import resource; resource.prlimit({pid}, resource.RLIMIT_{name}, ({soft}, {hard}))"


def change(name: str, soft: str, hard: str) -> None:
    """As a user's file does it, from another process of the same user."""
    program = CHANGE.format(pid=os.getpid(), name=name, soft=soft, hard=hard)
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_limit_that_another_process_changed_is_put_back_and_named(tmp_path: Path) -> None:
    limits = OwnLimits()
    assert limits.restore() == ""
    change("FSIZE", "0", "resource.RLIM_INFINITY")
    assert limits.restore() == "changed limits of the suite's own process: RLIMIT_FSIZE to 0, undone"
    (tmp_path / "file").write_text("a file can be written again", encoding="ascii")
    assert limits.restore() == ""


def test_a_limit_with_two_names_is_named_once() -> None:
    limits = OwnLimits()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    change("NOFILE", str(soft - 1), str(hard))
    assert limits.restore() == f"changed limits of the suite's own process: RLIMIT_NOFILE to {soft - 1}, undone"
