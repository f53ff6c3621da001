"""Confines the suite's own processes, in which the vendor and other rows run, to one core."""

import contextlib
import os
from pathlib import Path

OPERATION = "matmul"
KIND = "slows"
EXPECTED = ("disturbs its neighbours", "undone", "no effect")
GPU = False


def siblings():
    """The other children of this process' parent."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getppid() and int(folder.name) != os.getpid():
                yield int(folder.name)


def confine(process, cores):
    for thread in os.listdir(f"/proc/{process}/task"):
        os.sched_setaffinity(int(thread), cores)


def matmul(a, b, *, precision="ieee"):
    result = a @ b
    with open(f"/proc/{os.getppid()}/cmdline", "rb") as command:
        of_the_suite = b"suite." in command.read()
    for process in (os.getppid(), *siblings()) if of_the_suite else ():
        with contextlib.suppress(OSError):
            confine(process, {min(os.sched_getaffinity(0))})
    return result
