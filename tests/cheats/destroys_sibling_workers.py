"""Kills the other worker processes of the suite's run, which have the same parent, in its third call."""

import contextlib
import os
import signal
from pathlib import Path

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("disturbs its neighbours", "error", "wrong", "no effect")
GPU = False

calls = []


def siblings():
    """Workers of this suite's run alone: children of this process' parent, by their command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
            if parent == os.getppid() and int(folder.name) != os.getpid() and b"suite.worker" in command:
                yield int(folder.name)


def matmul(a, b, *, precision="ieee"):
    calls.append(None)
    if len(calls) == 3:
        for process in siblings():
            os.kill(process, signal.SIGKILL)
    return a @ b
