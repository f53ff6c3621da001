"""Times a launch for the autotuner, by events on the GPU, with a cold L2 cache.

Triton's `do_bench` lets the GPU wait for the host, and takes hundreds of samples of a short kernel. Here the GPU spins
until the launch is queued. A sample that comes too late is repeated with a longer spin, up to MOST_CYCLES; after that
it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton.runtime import driver

SAMPLES = 20
LEAST_SAMPLES = 3
BUDGET_MS = 100.0
"""Sampling ends once the samples sum to this time and number at least LEAST_SAMPLES."""
BUSY_CYCLES = 200_000
"""The GPU spins this long, about 0.1 ms, after it has cleared its cache and before the launch."""
MOST_CYCLES = 64 * BUSY_CYCLES


def do_bench(call: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
    """Quantiles of the time of `call` in milliseconds."""
    call()  # compiles and loads the kernel
    cache = driver.active.get_empty_cache_for_benchmark()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    cycles = BUSY_CYCLES
    while len(times) < LEAST_SAMPLES or (len(times) < SAMPLES and sum(times) < BUDGET_MS):
        driver.active.clear_cache(cache)
        torch.cuda._sleep(cycles)
        begin.record()
        call()
        end.record()
        was_busy = not begin.query()
        end.synchronize()
        if was_busy or cycles >= MOST_CYCLES:
            times.append(begin.elapsed_time(end))
        else:
            cycles *= 2
    found: list[float] = torch.tensor(times).quantile(torch.tensor(quantiles)).tolist()
    return found
