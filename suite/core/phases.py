"""Phases of a request to a worker: each has its own time limit, and a timeout message names the phase."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """The present work of a worker. Messages show the value."""

    STARTING = "starting the worker"
    PREPARING = "making the inputs"
    FIRST_CALL = "first call"
    SECOND_CALL = "second call"
    THIRD_CALL = "third call"
    TELLING_CALL = "telling call"
    TIMED_CALL = "timed call"
    JUDGING = "judging"

    @property
    def runs_implementation(self) -> bool:
        """True for phases that run code of an implementation; the others run the suite's own code."""
        return self not in (Phase.STARTING, Phase.PREPARING, Phase.JUDGING)


@dataclass(frozen=True)
class Started:
    """A phase that begins or goes on. `implementation` is the one that runs; None for the suite's own work."""

    implementation: str | None
    phase: Phase
    config: str = ""
    """During a search the configuration under trial; in a telling call the name of the telling case."""
