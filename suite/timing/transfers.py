"""What bringing the inputs to the device and the result back costs, seen from the host."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from suite.timing.stats import median

LEAST, MOST, SPENT_NS = 5, 50, 200_000_000
"""Copies of one kind: at least and at most, and the time after which the least will do."""


def transfers(
    inputs: tuple[Any, ...], output_shape: tuple[int, ...], output_dtype: str, device: Any
) -> dict[str, float]:
    """Medians in us: `to_device_us` and `to_host_us` through pageable host memory, `..._pinned_us` through pinned.

    The host's arrays exist, are touched and are reused, as those of a program that computes more than once; a copy ends
    when the device is idle again. On a CPU nothing is transferred: zeros.
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
    """A copy in host memory with the same strides."""
    import torch

    empty = torch.empty_like(tensor, device="cpu", pin_memory=pinned)
    return empty.copy_(tensor)


def _copy_us(targets: list[Any], sources: list[Any], asynchronous: bool, synchronize: Callable[[], None]) -> float:
    times: list[float] = []
    begin = time.perf_counter_ns()
    while len(times) < LEAST or (len(times) < MOST and time.perf_counter_ns() - begin < SPENT_NS):
        synchronize()
        start = time.perf_counter_ns()
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=asynchronous)
        synchronize()
        times.append((time.perf_counter_ns() - start) / 1000)
    return median(times)
