"""Sampling budgets of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

BUDGETS_S = {"cuda": 0.04, "cpu": 0.1}
"""Time for the samples of an implementation by device type, beyond the minimum of samples."""
INTERVAL = 0.005
"""Relative half width of a median's 95% interval at which an implementation takes no more samples."""


@dataclass(frozen=True)
class Least:
    """The least that is measured of each call, beyond what the suite measures anyway."""

    time_s: float = 0.0
    """Seconds of sampling, with the preparation of the samples."""
    samples: int = 0


NOTHING_MORE = Least()
