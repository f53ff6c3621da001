"""A process and the processes that it has started, read from /proc."""

from __future__ import annotations

import subprocess
import sys

import pytest

from suite.processes import tree

PAGES = 64 << 20
FORKS = f"""import os, time
held = bytearray({PAGES})
held[::4096] = b"x" * len(held[::4096])
if os.fork() == 0:
    own = bytearray({PAGES // 2})
    own[::4096] = b"x" * len(own[::4096])
    print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(tree.resident_bytes(1) == 0, reason="/proc does not tell the memory of processes")
def test_memory_that_a_fork_shares_counts_once() -> None:
    with subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "ready\n"
            (child,) = tree.descendants(parent.pid)
            assert tree.children(parent.pid) == [child]
            counted, unshared = tree.resident_bytes(parent.pid), tree.unshared_bytes(parent.pid)
            assert counted > 2.4 * PAGES
            assert 1.4 * PAGES < unshared < counted - 0.9 * PAGES
        finally:
            tree.signal_all(parent.pid, 9)
            parent.kill()
