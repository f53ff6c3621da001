"""The least amount of sampling that a caller asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Least:
    """The least sampling of each call. The suite takes more samples where its intervals need them."""

    time_s: float = 0.0
    """Seconds of sampling, with the preparation of the samples."""
    samples: int = 0


NOTHING_MORE = Least()
