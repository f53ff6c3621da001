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
    before_us: float = 0.0
    """Time that the device was busy while the call was prepared."""
    after_us: float = 0.0
    """Time of kernels and fills while the result was delivered. Copies do not count: they compute nothing."""


class DeliveringRecorder(Protocol):
    """A recorder that also observes the delivery of results. `Recorder` has the other methods."""

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None: ...

    def deliver(self, run: Callable[[], None]) -> None:
        """Call `run`, which hands out the result of the latest sample. Its work is recorded apart from the call's."""

    def collect(self) -> list[Sample]: ...

    def serialize_kernels(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


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
