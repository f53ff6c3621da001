"""What a recorder is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from suite.timing.intervals import Activity


class Sample(NamedTuple):
    """One call, recorded once. `activities` is what the device ran for it; None where the recorder cannot know."""

    name: str
    us: float
    activities: Sequence[Activity] | None


class Recorder(Protocol):
    """Takes samples of calls. `collect` hands over the samples since the last `collect`, in the order taken."""

    name: str

    def start(self) -> None:
        """Raises `NoRecorderError`."""

    def stop(self) -> None: ...

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        """`prepare` sets the device's state and is kept out of the sample; `run` issues the call and waits."""

    def collect(self) -> list[Sample]: ...

    def one_at_a_time(self) -> None:
        """From now on no call has activities that overlap: a recorder that is more exact then may count on it."""
