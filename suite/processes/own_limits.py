"""Guards the limits, cores and priority of this process: another process of the same user can change them.

A user's file that sets RLIMIT_FSIZE of the suite's processes to 0 would end the run, since nothing could be written;
one that confines them to a core would slow all later rows.
"""

from __future__ import annotations

import contextlib
import os
import resource

from suite.processes.scheduling import Scheduling

ALIAS = "RLIMIT_OFILE"
"""Another name of RLIMIT_NOFILE."""
LIMITS = {
    name: getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_") and name != ALIAS
}


class OwnLimits:
    """The limits and the scheduling that this process has now."""

    def __init__(self) -> None:
        self._limits = {name: resource.getrlimit(number) for name, number in LIMITS.items()}
        self.scheduling = Scheduling.of(os.getpid())

    def restore(self) -> str:
        """Put back what was changed meanwhile. Returns a sentence about it; empty if nothing was."""
        changed = [name for name, limits in self._limits.items() if resource.getrlimit(LIMITS[name]) != limits]
        restored = [*map(self._restored, changed), *filter(None, [self.scheduling.restore(os.getpid())])]
        self.scheduling = Scheduling.of(os.getpid())  # what cannot be undone is named once
        return f"changed limits of the suite's own process: {', '.join(restored)}" if restored else ""

    def _restored(self, name: str) -> str:
        number, (soft, hard) = LIMITS[name], self._limits[name]
        found = resource.getrlimit(number)
        for limits in ((soft, hard), (found[1], found[1])):  # only the superuser can raise a hard limit
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(number, limits)
                break
        self._limits[name] = resource.getrlimit(number)
        undone = self._limits[name] == (soft, hard)
        return f"{name} to {found[0]}, {'undone' if undone else 'which cannot be undone'}"
