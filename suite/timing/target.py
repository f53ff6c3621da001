"""The interface of a measured device: clock, synchronization, cache eviction, recorder, state and energy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter_ns  # bound before any user's file can replace it
from typing import Any, Protocol

from suite import hardware
from suite.hardware.cuda_driver import devices
from suite.hardware.host import cores
from suite.hardware.occupancy import Limits
from suite.timing.l2_carve_out import CarveOut
from suite.timing.recorder import Recorder
from suite.timing.recorder_cupti import CuptiRecorder
from suite.timing.recorder_wall import WallRecorder

EVICTION = 2.5
"""Bytes read to evict a cache, relative to its size. More than two, since replacement is not strictly LRU."""
EVICTION_ROWS = 4096
"""Number of sums over these bytes. 4096 sums take one kernel (50 us on an H200), one sum takes a fill and a kernel
(220 us)."""


class Target(Protocol):
    """The interface of a measured device. `tests/timing` has one in simulated time."""

    on_host: bool
    """True if the calling thread is the device, so that wall time is device time."""

    def clock(self) -> int:
        """The host's clock in nanoseconds."""

    def synchronize(self) -> None:
        """Return when the device is idle."""

    def evict(self) -> None:
        """Fill the last-level cache with data that no call uses. May return before that is complete."""

    @property
    def cache_bytes(self) -> int:
        """Size of the last-level cache."""

    def kept_cache(self) -> str:
        """The setting that keeps a part of the cache from being evicted; empty if there is none."""

    def give_cache_back(self) -> None:
        """Give back the part of the cache that is set aside, so that an eviction empties the whole cache."""

    def recorder(self) -> Recorder:
        """A new recorder of this device."""

    def state(self) -> hardware.State | None:
        """Clocks, temperature and power now; None if they cannot be read."""

    def energy_mj(self) -> int | None:
        """The device's energy counter in millijoules; None if it has none."""

    def limits(self) -> Limits | None:
        """The resources of a multiprocessor; None if they are unknown."""


class CudaTarget:
    """One NVIDIA GPU, in the CUDA context that torch, JAX, Triton and CUDA share."""

    on_host = False

    def __init__(self, device: Any) -> None:
        import torch

        self._device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        properties = torch.cuda.get_device_properties(self._device)
        self.cache_bytes = cache_bytes(self._device)
        words = int(EVICTION * self.cache_bytes) // 4
        self._buffer = torch.zeros(EVICTION_ROWS, words // EVICTION_ROWS, dtype=torch.int32, device=self._device)
        self._sums = torch.empty(EVICTION_ROWS, dtype=torch.int32, device=self._device)
        self._torch = torch
        current_stream = torch.cuda.current_stream
        self._carve_out = CarveOut(lambda: int(current_stream(self._device).cuda_stream))
        synchronize = torch.cuda.synchronize  # bound before any user's file can replace it
        self._synchronize: Callable[[], None] = lambda: synchronize(self._device)
        self._handle = hardware.nvml_handle(self._device.index, uuid=str(getattr(properties, "uuid", "")))

    def clock(self) -> int:
        return perf_counter_ns()

    def synchronize(self) -> None:
        self._synchronize()

    def evict(self) -> None:
        """Evict by reading. Writes would leave dirty lines that the call then writes back: up to 15% of the time of an
        addition that fits in the cache.
        """
        self._carve_out.remove(anyway=False)  # what only a user's file would hide is undone in the file's process
        self._torch.sum(self._buffer, dim=1, dtype=self._torch.int32, out=self._sums)

    def kept_cache(self) -> str:
        return self._carve_out.found()

    def give_cache_back(self) -> None:
        self._carve_out.remove()

    def recorder(self) -> Recorder:
        return CuptiRecorder(self.synchronize, probe=lambda: self._sums.fill_(0), device=self._device.index)

    def state(self) -> hardware.State | None:
        return hardware.state(self._handle)

    def energy_mj(self) -> int | None:
        return hardware.energy_mj(self._handle)

    def limits(self) -> Limits | None:
        return next(
            (Limits.from_attributes(each["attributes"]) for each in devices() if each["index"] == self._device.index),
            None,
        )


def cache_bytes(device: Any) -> int:
    """Size of the last-level cache of a `torch.device`."""
    import torch

    if device.type == "cpu":
        return hardware.cpu_cache_bytes()
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


@cache
def unrelated_memory() -> Any:
    """The memory that is read to evict the host's cache. Processes forked from one that has it share it."""
    import numpy as np

    return np.ones(int(EVICTION * hardware.cpu_cache_bytes()) // 8, dtype=np.int64)


@cache
def _parts(count: int) -> list[Any]:
    import numpy as np

    return np.array_split(unrelated_memory(), count)


def _maximum(values: Any) -> None:
    values.max()


class CpuTarget:
    """The host's processor."""

    on_host = True

    @property
    def cache_bytes(self) -> int:
        return hardware.cpu_cache_bytes()

    def clock(self) -> int:
        return perf_counter_ns()

    def synchronize(self) -> None: ...

    def evict(self) -> None:
        """Evict by reading, on every core, since each has a cache of its own too.

        Large fills bypass the cache, and leave a part of the operands there.
        """
        with ThreadPoolExecutor(cores()) as threads:  # NumPy lets go of the interpreter's lock
            list(threads.map(_maximum, _parts(cores())))

    def kept_cache(self) -> str:
        return ""

    def give_cache_back(self) -> None: ...

    def recorder(self) -> Recorder:
        return WallRecorder()

    def state(self) -> None:
        return None

    def energy_mj(self) -> None:
        return None

    def limits(self) -> None:
        return None


def target(device: Any) -> Target:
    """The target of a `torch.device`. Raises `ValueError` for other types than cpu and cuda."""
    if device.type == "cuda":
        return CudaTarget(device)
    if device.type == "cpu":
        return CpuTarget()
    raise ValueError(f"measure: device must be of type cpu or cuda; got {device.type!r}")
