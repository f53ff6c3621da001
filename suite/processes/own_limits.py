"""Guards the resource limits of this process: another process of the same user can change them (prlimit(2)).

A user's file that sets RLIMIT_FSIZE of the suite's processes to 0 would end the run, since nothing could be written.
"""

from __future__ import annotations

import contextlib
import resource

LIMITS = {name: getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_")}


class OwnLimits:
    """The limits that this process has now."""

    def __init__(self) -> None:
        self._limits = {name: resource.getrlimit(number) for name, number in LIMITS.items()}

    def restore(self) -> str:
        """Put back the limits that were changed meanwhile. Returns a sentence about them; empty if there are none."""
        changed = [name for name, limits in self._limits.items() if resource.getrlimit(LIMITS[name]) != limits]
        return "changed limits of the suite's own process: " * bool(changed) + ", ".join(map(self._restored, changed))

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
