"""What a process that runs kernels does before anything else."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys


def settle(stacks: int, lifeline: int) -> int:
    """Make sure that this process ends with its parent, can dump its stack, and prints to its log.

    SIGUSR1 writes the Python stack to the descriptor `stacks`; the end of the pipe `lifeline` kills the process group:
    the process that waits for it is returned.
    """
    os.set_inheritable(stacks, False)
    faulthandler.enable(stacks, all_threads=False)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")
    # The shell outlives a killed parent and ends this process group, with compilers and whatever else was started.
    shell = subprocess.Popen(["/bin/sh", "-c", "read -r line; kill -KILL 0"], stdin=lifeline, stdout=subprocess.DEVNULL)
    os.close(lifeline)
    sys.stdout = sys.stderr
    os.dup2(2, 1)  # what a kernel prints goes to the log
    return shell.pid
