"""The processes that a process has started, directly or indirectly, and their memory, read from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
REAP_PERIOD_S = 0.002
STILL = ("T", "t", "Z", "X", "")
"""States of a thread that a signal or a debugger has stopped, or that has ended."""


def adopt_orphans() -> None:
    """Make this process the parent of orphans among its descendants, so that `descendants` finds them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Let the system kill this process as soon as its parent ends, however that ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def children(pid: int) -> list[int]:
    """The children of the process `pid`; none where the system has no /proc."""
    return _recent.by_parent(0.0).get(pid, [])


def descendants(pid: int, max_age_s: float = 0.0) -> list[int]:
    """The children of `pid`, their children, and so on, as they were at most `max_age_s` ago."""
    by_parent, found = _recent.by_parent(max_age_s), [pid]
    for each in found:  # the list grows meanwhile
        found += by_parent.get(each, [])
    return found[1:]


class _Recent:
    """The last table of processes: threads that each watch a process share it, since reading it takes milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at, self._table = -math.inf, dict[int, list[int]]()

    def by_parent(self, max_age_s: float) -> dict[int, list[int]]:
        with self._lock:
            if max_age_s <= 0 or time.monotonic() - self._read_at > max_age_s:
                self._table = _by_parent()
                self._read_at = time.monotonic()
            return self._table


_recent = _Recent()


def _by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as stat:  # hundreds are read, many times in a run
                    parent = int(stat.read().rpartition(b")")[2].split(maxsplit=2)[1])
            except (OSError, ValueError, IndexError):
                continue
            found.setdefault(parent, []).append(int(name))
    return found


def state(pid: int) -> str:
    """The state of a process as a letter, such as T while a signal stops it; empty if there is none, or no /proc."""
    try:
        return _state(Path(f"/proc/{pid}/stat").read_bytes())
    except (OSError, IndexError):
        return ""


def stands_still(pid: int) -> bool:
    """True if a signal has stopped every thread of a process, or it has ended; also where the system has no /proc."""
    return all(_state(stat) in STILL for stat in _thread_files(pid, "stat"))


def run_ns(pid: int) -> int:
    """The time for which the threads of a process have run; 0 where the system does not record it."""
    return sum(int(each.split()[0]) for each in _thread_files(pid, "schedstat") if each.split())


def _thread_files(pid: int, name: str) -> list[bytes]:
    """The file `name` of each thread of a process in /proc."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/{name}", "rb", buffering=0) as file:
                found.append(file.read())
    return found


def _state(stat: bytes) -> str:
    return stat.rpartition(b")")[2].split()[0].decode() if b")" in stat else ""


def signal_all(pid: int, number: int) -> None:
    """Send a signal to all descendants of `pid`, in any session and process group."""
    for each in descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, number)


def reap_group(group: int, limit_s: float) -> None:
    """Reap the killed processes of `group` that this process has adopted. Give up after `limit_s`."""
    deadline = time.monotonic() + limit_s
    with contextlib.suppress(ChildProcessError):  # none is left, or the system has adopted them
        while time.monotonic() < deadline:
            if os.waitpid(-group, os.WNOHANG) == (0, 0):
                time.sleep(REAP_PERIOD_S)


def resident_bytes(pid: int, max_age_s: float = 0.0) -> int:
    """Resident memory of `pid` plus the unshared memory of its descendants; 0 where the system has no /proc.

    Descendants are those of at most `max_age_s` ago.
    """
    own, _ = _memory(pid)
    return own + sum(resident - shared for resident, shared in map(_memory, descendants(pid, max_age_s)))


def unshared_bytes(pid: int) -> int:
    """`resident_bytes` without pages that descendants share since a fork. It takes milliseconds for each descendant."""
    own, _ = _memory(pid)
    return own + sum(map(_private_bytes, descendants(pid)))


def _private_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
            return sum(1024 * int(line.split()[1]) for line in text if line.startswith("Private_Dirty:"))
    except (OSError, ValueError, IndexError):
        resident, shared = _memory(pid)
        return resident - shared


def _memory(pid: int) -> tuple[int, int]:
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return int(resident) * os.sysconf("SC_PAGE_SIZE"), int(shared) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0, 0
