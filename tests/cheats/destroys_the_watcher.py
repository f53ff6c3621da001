"""Kills the processes that its own process had before it was loaded, which watch that nothing outlives a run."""

import contextlib
import os
import signal
from pathlib import Path

OPERATION = "matmul"
KIND = "destroys"
EXPECTED = ("error", "no effect")
GPU = False


def own_children():
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(folder.name)


def matmul(a, b, *, precision="ieee"):
    for process in own_children():
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    return a @ b
