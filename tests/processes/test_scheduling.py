"""Cores and priority of a process that another process changes are put back and named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.processes.own_limits import OwnLimits
from suite.processes.scheduling import Scheduling

THREADED = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nprint(flush=True)"
one_core = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


@one_core
def test_all_threads_of_a_process_get_their_cores_back() -> None:
    process = subprocess.Popen([sys.executable, "-c", THREADED], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        before = Scheduling.of(process.pid)
        threads = [int(each.name) for each in Path(f"/proc/{process.pid}/task").iterdir()]
        assert len(threads) == 2
        for thread in threads:
            os.sched_setaffinity(thread, {min(before.cores)})
        assert before.restore(process.pid) == f"cores to [{min(before.cores)}], undone"
        assert all(os.sched_getaffinity(thread) == before.cores for thread in threads)
        assert before.restore(process.pid) == ""
    finally:
        process.kill()
        process.wait()
    assert before.restore(process.pid) == "", "it has ended"


def test_a_lowered_priority_is_named_and_put_back_where_the_system_allows_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        before = Scheduling.of(process.pid)
        lower = min(19, before.priority + 5)
        os.setpriority(os.PRIO_PROCESS, process.pid, lower)
        said = before.restore(process.pid)
        undone = Scheduling.of(process.pid) == before
        assert said == f"priority to {lower}, {'undone' if undone else 'which cannot be undone'}"
        assert undone or os.getuid() != 0
    finally:
        process.kill()
        process.wait()


@one_core
def test_the_suite_names_a_change_of_its_own_cores() -> None:
    limits, cores = OwnLimits(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    assert limits.restore() == f"changed limits of the suite's own process: cores to [{min(cores)}], undone"
    assert os.sched_getaffinity(0) == cores
