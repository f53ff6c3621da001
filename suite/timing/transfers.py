"""Measures the copies of the inputs to the device and of the result back to the host, with the host's clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from suite.timing.stats import median

MIN_COPIES, MAX_COPIES, BUDGET_NS = 5, 50, 200_000_000
"""Each kind of copy is measured at least MIN_COPIES times, then until BUDGET_NS are spent or MAX_COPIES are made."""


def transfers(
    inputs: tuple[Any, ...], output_shape: tuple[int, ...], output_dtype: str, device: Any
) -> dict[str, float]:
    """Median times in us: `to_device_us` and `to_host_us` for pageable host memory, `..._pinned_us` for pinned memory.

    The host arrays are allocated and touched beforehand and reused. A copy ends when the device is idle. All values are
    0 on a CPU, where nothing is transferred.
    """
    names = ("to_device_us", "to_device_pinned_us", "to_host_us", "to_host_pinned_us")
    if device.type != "cuda":
        return dict.fromkeys(names, 0.0)
    import torch

    output = torch.zeros(math.prod(output_shape), dtype=getattr(torch, output_dtype), device=device)
    there = [torch.empty_like(tensor) for tensor in inputs]
    measured = []
    for to_device in (True, False):
        for pinned in (False, True):
            sources = list(inputs) if to_device else [output]
            hosts = [_on_host(source, pinned) for source in sources]
            targets, origins = (there, hosts) if to_device else (hosts, sources)
            measured.append(_copy_us(targets, origins, pinned, torch.cuda.synchronize))
    return dict(zip(names, measured, strict=True))


def _on_host(tensor: Any, pinned: bool) -> Any:
    """A copy of `tensor` in host memory, with its strides."""
    import torch

    empty = torch.empty_like(tensor, device="cpu", pin_memory=pinned)
    return empty.copy_(tensor)


def _copy_us(targets: list[Any], sources: list[Any], asynchronous: bool, synchronize: Callable[[], None]) -> float:
    """Median time in us to copy all `sources` to `targets`."""
    times: list[float] = []
    begin = time.perf_counter_ns()
    while len(times) < MIN_COPIES or (len(times) < MAX_COPIES and time.perf_counter_ns() - begin < BUDGET_NS):
        synchronize()
        start = time.perf_counter_ns()
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=asynchronous)
        synchronize()
        times.append((time.perf_counter_ns() - start) / 1000)
    return median(times)
