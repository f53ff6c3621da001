"""A process and the processes that it has started, read from /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize(("max_age_s", "reads"), [(60.0, 1), (0.0, 8)], ids=["recent", "fresh"])
def test_threads_share_a_recent_table_of_processes(
    max_age_s: float, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[dict[int, list[int]]] = []

    def read() -> dict[int, list[int]]:
        tables.append({1: [2], 2: [3]})
        return tables[-1]

    monkeypatch.setattr(tree, "_by_parent", read)
    monkeypatch.setattr(tree, "_recent", tree._Recent())
    with ThreadPoolExecutor(8) as threads:
        found = [*threads.map(lambda _: tree.descendants(1, max_age_s), range(8))]
    assert found == [[2, 3]] * 8
    assert len(tables) == reads


ADOPTS = """import os, subprocess, sys
from suite.processes import tree

tree.adopt_orphans()
parent = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
while len(tree.descendants(os.getpid())) < 3:
    pass
os.killpg(parent.pid, 9)
parent.wait()
print(len(tree.descendants(os.getpid())) > 0)
tree.reap_group(parent.pid, 30)
print(tree.descendants(os.getpid()))
"""


@pytest.mark.skipif(tree.children(os.getppid()) == [], reason="/proc does not tell the processes")
def test_adopted_processes_of_a_killed_group_are_waited_for() -> None:
    run = subprocess.run([sys.executable, "-c", ADOPTS], capture_output=True, text=True, timeout=100, check=True)
    assert run.stdout.split("\n", 1) == ["True", "[]\n"]


def test_a_process_can_end_with_its_killed_parent() -> None:
    text = (
        "import subprocess, sys\nfrom suite.processes import tree\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], preexec_fn=tree.end_with_parent)\n"
        "print(child.pid, flush=True)\ninput()\n"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdin=-1, stdout=-1, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 100
    while tree.state(child) not in ("", "Z") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tree.state(child) in ("", "Z")


def test_a_stopped_process_stands_still_and_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            assert not tree.stands_still(busy.pid)
            busy.send_signal(signal.SIGSTOP)
            while not tree.stands_still(busy.pid):
                time.sleep(0)
            before = tree.run_ns(busy.pid)
            time.sleep(0.05)
            assert tree.run_ns(busy.pid) == before
            busy.send_signal(signal.SIGCONT)
            time.sleep(0.3)
            assert tree.run_ns(busy.pid) >= before
            assert not tree.stands_still(busy.pid)
        finally:
            busy.kill()
