"""What a worker and the process that started it say to each other: one JSON document a line, over two pipes.

The worker says {"event": "ready"} when it has started, {"event": "started", "implementation": ..., "phase": ...} when
something begins that may hang or crash, and {"event": "done", ...} with the answer to a request. The implementation is
what a death or a silence is blamed on; the phase decides how long a silence may last.
"""

STARTING = "starting the worker"
PREPARING = "making the inputs"
FIRST_CALL = "first call"
TIMED_CALL = "timed call"
JUDGING = "judging"
OWN_WORK = frozenset((STARTING, PREPARING, JUDGING))
"""What the suite does itself. Every phase that is neither this nor the first call is a later call."""

FIRST_CALL_S = 120.0
"""Longest first call of an implementation in a process (load, build, compile, tune), unless `--timeout` says else."""
CALL_S = 30.0
"""Longest call after it, or `--timeout` if that is shorter."""
OWN_WORK_S = 600.0


def limit_s(phase: str, timeout_s: float) -> float:
    """How long a worker may be silent in `phase`, where `--timeout` is `timeout_s`."""
    if phase == FIRST_CALL:
        return timeout_s
    return max(timeout_s, OWN_WORK_S) if phase in OWN_WORK else min(timeout_s, CALL_S)


def overdue(phase: str, allowed_s: float) -> str:
    """The reason of a row whose worker was silent for too long."""
    if phase == FIRST_CALL:
        return (
            f"the first call (load, build, compile, tune) did not end within {allowed_s:g} s and was stopped; "
            "--timeout allows more"
        )
    what = phase if phase in OWN_WORK else f"a {phase}, after calls that had ended,"
    return f"{what} did not end within {allowed_s:g} s and was stopped"
