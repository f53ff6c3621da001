"""The device that is measured: what surrounds a sample. One class for a GPU, one for the CPU, one fake in the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from suite import hardware
from suite.timing.recorder import Recorder
from suite.timing.recorder_cupti import CuptiRecorder
from suite.timing.recorder_wall import WallRecorder

EVICTION = 2.5
"""Bytes read to evict a cache, over its size. More than two, since replacement is not strictly by age."""
EVICTION_ROWS = 4096
"""Sums made of them: as many as take one kernel, 50 us on an H200, where one sum took a fill, a kernel and 220 us."""


class Target(Protocol):
    on_host: bool
    """Whether the caller's thread is the device, so that wall time is device time."""

    def clock(self) -> int:
        """The host's clock, in nanoseconds."""

    def synchronize(self) -> None:
        """Return when the device is idle."""

    def evict(self) -> None:
        """Fill the last-level cache with data no call uses. May return before it is done."""

    def recorder(self) -> Recorder:
        """Raises `NoRecorderError`."""

    def state(self) -> hardware.State | None:
        """Clocks, temperature and power now; None where they cannot be read."""

    def energy_mj(self) -> int | None:
        """The device's energy counter, in millijoules; None if it has none."""


class CudaTarget:
    """One NVIDIA GPU, with the current context of torch, which JAX and CUDA share."""

    on_host = False

    def __init__(self, device: Any) -> None:
        import torch

        self._device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        properties = torch.cuda.get_device_properties(self._device)
        words = int(EVICTION * properties.L2_cache_size) // 4
        self._buffer = torch.zeros(EVICTION_ROWS, words // EVICTION_ROWS, dtype=torch.int32, device=self._device)
        self._sums = torch.empty(EVICTION_ROWS, dtype=torch.int32, device=self._device)
        self._torch = torch
        self._synchronize: Callable[[], None] = lambda: torch.cuda.synchronize(self._device)
        self._handle = hardware.nvml_handle(self._device.index, uuid=str(getattr(properties, "uuid", "")))

    def clock(self) -> int:
        return time.perf_counter_ns()

    def synchronize(self) -> None:
        self._synchronize()

    def evict(self) -> None:
        """By reading: after writes the cache is full of lines that the call has to write back first, up to 15% of the
        time of an addition that fits in it.
        """
        self._torch.sum(self._buffer, dim=1, dtype=self._torch.int32, out=self._sums)

    def recorder(self) -> Recorder:
        return CuptiRecorder(self.synchronize, probe=lambda: self._sums.fill_(0))

    def state(self) -> hardware.State | None:
        return hardware.state(self._handle)

    def energy_mj(self) -> int | None:
        return hardware.energy_mj(self._handle)


class CpuTarget:
    """The host's processor."""

    on_host = True

    def __init__(self) -> None:
        self._buffer: Any = None

    def clock(self) -> int:
        return time.perf_counter_ns()

    def synchronize(self) -> None: ...

    def evict(self) -> None:
        import numpy as np

        if self._buffer is None:
            self._buffer = np.empty(int(EVICTION * hardware.cpu_cache_bytes()), dtype=np.uint8)
        self._buffer.fill(1)

    def recorder(self) -> Recorder:
        return WallRecorder()

    def state(self) -> None:
        return None

    def energy_mj(self) -> None:
        return None


def target(device: Any) -> Target:
    """The target of a `torch.device`."""
    if device.type == "cuda":
        return CudaTarget(device)
    if device.type == "cpu":
        return CpuTarget()
    raise ValueError(f"measure: device must be of type cpu or cuda; got {device.type!r}")
