"""The processor cores and the priority of a process, which another process of the same user can change."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Scheduling:
    """The cores on which a process may run, and its priority (a nice value, the lower the earlier it runs)."""

    cores: frozenset[int]
    priority: int

    @classmethod
    def of(cls, pid: int) -> Scheduling:
        """The scheduling of the first thread of a process. Raises `ProcessLookupError` if it has ended."""
        return cls(frozenset(os.sched_getaffinity(pid)), os.getpriority(os.PRIO_PROCESS, pid))

    def restore(self, pid: int) -> str:
        """Give all threads of a process this scheduling if its first has another. Returns what was changed.

        Only the superuser can raise a priority.
        """
        try:
            found = Scheduling.of(pid)
        except ProcessLookupError:
            return ""
        if found == self:
            return ""
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, self.cores)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, self.priority)
        undone = "undone" if Scheduling.of(pid) == self else "which cannot be undone"
        changed = [f"cores to {sorted(found.cores)}"] * (found.cores != self.cores)
        changed += [f"priority to {found.priority}"] * (found.priority != self.priority)
        return f"{', '.join(changed)}, {undone}"
