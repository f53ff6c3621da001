"""Measures a call with the host's clock. On a CPU the calling thread is the device, so wall time is device time."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns  # bound before any user's file can replace it

from suite.timing.recorder import Sample


class WallRecorder:
    """Takes the wall time of issue and wait as a sample."""

    name = "wall"

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._clock = clock
        self._samples: list[Sample] = []

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        prepare()
        begin = self._clock()
        run()
        self._samples.append(Sample(name, (self._clock() - begin) / 1000, None))

    def collect(self) -> list[Sample]:
        samples, self._samples = self._samples, []
        return samples

    def serialize_kernels(self) -> None: ...
