"""The least that is measured of each call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Least:
    """The least that is measured of each call, beyond what the suite measures anyway."""

    time_s: float = 0.0
    """Seconds of sampling, with the preparation of the samples."""
    samples: int = 0


NOTHING_MORE = Least()
