"""A GPU in simulated time."""

from __future__ import annotations

import itertools

from suite import hardware
from suite.timing import Activity, Call, NoRecorderError, union_ns
from suite.timing.recorder import Sample


class FakeTarget:
    """A target and its recorder: calls and evictions advance `now`; samples are the exact busy times."""

    on_host = False

    def __init__(self, unavailable: str = "", states: list[hardware.State] | None = None) -> None:
        self.now = self.free_at = 0
        self.unavailable = unavailable
        self.states = itertools.cycle(states) if states else None
        self.evictions = self.recorded_evictions = 0
        self.running: list[Activity] = []
        self.live = False
        self.traced = False
        self.serial = False
        self.power_w = 500.0

    def clock(self) -> int:
        return self.now

    def synchronize(self) -> None: ...

    def evict(self) -> None:
        self.evictions += 1
        self.recorded_evictions += self.live
        self.now += 50_000

    cache_bytes = 50_000_000

    def kept_cache(self) -> str:
        return ""

    def recorder(self) -> FakeTarget:
        if self.unavailable:
            raise NoRecorderError(self.unavailable)
        self.samples: list[Sample] = []
        return self

    name = "cupti"

    def start(self) -> None:
        self.live = self.traced = True

    def stop(self) -> None:
        self.live = False

    def serialize_kernels(self) -> None:
        self.serial = True

    def sample(self, name: str, prepare: object, run: object) -> None:
        prepare()
        self.running = []
        run()
        busy = union_ns((activity.start, activity.end) for activity in self.running)
        self.samples.append(Sample(name, busy / 1000, self.running))

    def collect(self) -> list[Sample]:
        samples, self.samples = self.samples, []
        return samples

    def state(self) -> hardware.State | None:
        return next(self.states) if self.states else None

    def energy_mj(self) -> int:
        return int(self.now / 1e9 * self.power_w * 1000) // 10_000 * 10_000  # updated in steps of 10 J

    def limits(self) -> None:
        return None

    def call(self, name: str, us: object, kernels: object = 1, vendor: bool = False, issue_us: float = 5.0) -> Call:
        """A call busy for `us` (a number or a function of none), in `kernels` equal parts, issued in `issue_us`."""

        def issue() -> int:
            self.now += int(issue_us * 1000)
            total = us() if callable(us) else us
            parts = kernels() if callable(kernels) else kernels
            start = max(self.now, self.free_at)
            self.free_at = start + int(total * 1000)
            for _ in range(parts):
                self.running.append(Activity(name, start, start + int(total * 1000 / parts), "kernel"))
                start += int(total * 1000 / parts) + 100_000  # a gap that must not count
            return self.free_at

        def wait(ready_at: int) -> None:
            self.now = max(self.now, ready_at)

        return Call(name, issue, wait, vendor)
