"""The first steps of a process that runs kernels, before it loads any of them."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Sequence


def set_up(stacks: int, lifeline: int) -> int:
    """Make this process end with its parent, dump its stack on a signal, and print to its log.

    SIGUSR1 writes the Python stack to the descriptor `stacks`. The end of the pipe `lifeline` kills the process group:
    a shell waits for it. Returns the process id of that shell.
    """
    os.set_inheritable(stacks, False)
    faulthandler.enable(stacks, all_threads=False)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)  # such a signal ends the process, and is no exception of a kernel
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")
    # The shell outlives a killed parent and ends this process group, including compilers that were started.
    shell = subprocess.Popen(["/bin/sh", "-c", "read -r line; kill -KILL 0"], stdin=lifeline, stdout=subprocess.DEVNULL)
    os.close(lifeline)
    sys.stdout = sys.stderr
    os.dup2(2, 1)  # a kernel's prints go to the log
    return shell.pid


def detach(descriptors: Sequence[int], output: int) -> None:
    """Give a forked process its own session, leave it only `descriptors`, and redirect its prints to `output`."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    _close_others(descriptors)


def _close_others(descriptors: Sequence[int]) -> None:
    """Close every descriptor but `descriptors` and the standard streams."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in descriptors:
            with contextlib.suppress(OSError):  # the descriptor of the listed folder is closed already
                os.close(int(name))
