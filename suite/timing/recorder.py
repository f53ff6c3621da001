"""The interface of a recorder, which takes samples of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from suite.timing.intervals import Activity


class Sample(NamedTuple):
    """The device time of one call."""

    name: str
    """The name of the call."""
    us: float
    activities: Sequence[Activity] | None
    """The device's activities during the call; None if the recorder cannot observe them."""


class Recorder(Protocol):
    """Takes samples of calls, in batches: `collect` ends a batch."""

    name: str

    def start(self) -> None:
        """Start recording. Raises `NoRecorderError`."""

    def stop(self) -> None: ...

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        """Sample the call `name` once. `prepare` sets the device's state, `run` issues the call and waits for it.

        The time of `prepare` is not part of the sample.
        """

    def collect(self) -> list[Sample]:
        """The samples since the last `collect`, in order. Raises `RecorderError`."""

    def serialize_kernels(self) -> None:
        """Allow a more exact mode that serializes kernels, because no activities of one call overlap."""
