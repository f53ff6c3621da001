"""Limits of the time between two messages of a worker in each phase, and the reason of a row that exceeds one."""

from __future__ import annotations

import time

from suite.core.phases import Phase

FIRST_CALL_S = 120.0
"""Limit of an implementation's first call in a process (load, build, compile, tune). `--timeout` replaces it."""
CALL_S = 30.0
"""Limit of each later call, or `--timeout` if that is shorter."""
SUITE_WORK_S = 600.0
"""Limit of the phases that run no implementation, or `--timeout` if that is longer."""
STEP_S = 1.0


class OwnTime:
    """A clock, in seconds from 0, for a limit that this process watches by reading it many times per second.

    It goes on by at most STEP_S between two readings: while this process is stopped, as by Ctrl-Z or with the whole
    machine, the process that it waits for may be stopped too.
    """

    def __init__(self) -> None:
        self._now, self._read_at = 0.0, time.monotonic()

    def __call__(self) -> float:
        before, self._read_at = self._read_at, time.monotonic()
        self._now += min(self._read_at - before, STEP_S)
        return self._now


def limit_s(phase: Phase, timeout_s: float) -> float:
    """Seconds without a message after which a worker in `phase` is stopped; `timeout_s` is the value of `--timeout`."""
    if phase in (Phase.FIRST_CALL, Phase.TELLING_CALL):  # a new size may be compiled too
        return timeout_s
    return min(timeout_s, CALL_S) if phase.runs_implementation else max(timeout_s, SUITE_WORK_S)


def overdue(phase: Phase, limit: float, config: str = "") -> str:
    """The reason of a row whose worker sent nothing for `limit` seconds.

    `config` is the configuration that a search was trying, or the name of the telling case.
    """
    if phase is Phase.FIRST_CALL:
        return (
            f"the first call (load, build, compile, tune) did not end within {limit:g} s and was stopped; "
            "--timeout allows more"
        )
    what = f"a {phase}{f' of {config}' if config else ''}, after earlier calls had ended,"
    return f"{what if phase.runs_implementation else phase} did not end within {limit:g} s and was stopped"
