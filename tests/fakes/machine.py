"""A GPU in simulated time that runs the work of the timer's proof in exactly the expected time."""

from __future__ import annotations

import random
from collections.abc import Callable

from suite import hardware
from suite.doctor.timer_proof.work import Kit
from suite.timing import Activity, union_ns
from suite.timing.recorder import Sample


class Machine:
    """A target and its recorder. `distort` turns the activities of a sample into what a wrong recorder reports:
    a time in us and activities.
    """

    CLOCK_MHZ, LAUNCH_US, BYTES_PER_US = 1980.0, 1.2, 4_300_000.0
    on_host = False
    name = "cupti"

    def __init__(self, distort: Callable[[list[Activity]], tuple[float, list[Activity]]] | None = None) -> None:
        self.distort = distort or self.truth
        self.tracing = False
        self.slowdown = self.sample_adds_us = 0.0
        self.now = self.free_at = 0
        self.running: list[Activity] = []
        self.samples: list[Sample] = []
        self.jitter = random.Random(1)

    @staticmethod
    def truth(activities: list[Activity]) -> tuple[float, list[Activity]]:
        return union_ns((a.start, a.end) for a in activities) / 1000, activities

    def launch(self, us: float, kind: str = "kernel") -> None:
        self.now += 5_000
        start = max(self.now, self.free_at)
        self.free_at = start + round(1000 * (us + self.LAUNCH_US + self.jitter.uniform(-0.03, 0.03)))
        self.running.append(Activity(kind, start, self.free_at, kind))

    def wait(self, result: object = None) -> None:
        self.now = max(self.now, self.free_at) + 8_000

    def sleep(self, seconds: float) -> None:
        self.now += int(1e9 * seconds)

    def kit(self, name: str) -> Kit:
        stream = lambda factor, kind: lambda n: self.launch(factor * n / self.BYTES_PER_US, kind)  # noqa: E731
        return Kit(
            name,
            self.wait,
            add_one=stream(8, "kernel"),
            spin=None if name == "jax" else lambda cycles: self.launch(cycles / self.CLOCK_MHZ),
            fill=stream(1, "memset") if name == "cuda" else None,
            copy=stream(2, "memcpy") if name == "cuda" else None,
            blocks=self.blocks if name == "cuda" else None,
        )

    def blocks(self, count: int) -> None:
        self.launch(count / 1000 * (1 + self.slowdown * self.tracing))

    def span_us(self, blocks: int) -> float:
        return (self.running[-1].end - self.running[-1].start) / 1000 - self.LAUNCH_US

    # the interface of a target
    def clock(self) -> int:
        return self.now

    def synchronize(self) -> None:
        self.now = max(self.now, self.free_at)

    def evict(self) -> None:
        self.now += 50_000

    def state(self) -> hardware.State:
        return hardware.State(self.CLOCK_MHZ, 3201, 40, 300.0, 0, 0)

    def limits(self) -> None:
        return None

    def energy_mj(self) -> None:
        return None

    # the interface of a recorder
    cache_bytes = 50_000_000

    def kept_cache(self) -> str:
        return ""

    def recorder(self) -> Machine:
        return self

    def start(self) -> None:
        self.tracing, self.samples = True, []

    def stop(self) -> None:
        self.tracing = False

    def sample(self, name: str, prepare: Callable[[], None], run: Callable[[], None]) -> None:
        prepare()
        self.synchronize()
        self.running = []
        run()
        self.synchronize()
        self.now += round(1000 * self.sample_adds_us)
        us, seen = self.distort(list(self.running))
        self.samples.append(Sample(name, us, seen))

    def collect(self) -> list[Sample]:
        samples, self.samples = self.samples, []
        return samples

    def serialize_kernels(self) -> None: ...
