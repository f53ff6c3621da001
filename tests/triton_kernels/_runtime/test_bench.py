"""The autotuner times the kernel, and not the host that launches it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from triton_kernels._runtime import bench


class Gpu:
    """A simulated GPU: it waits for the host in the first `late` samples."""

    def __init__(self, late: int, times: list[float]) -> None:
        self.late, self.times, self.calls, self.spins = late, times, 0, list[int]()

    def call(self) -> None:
        self.calls += 1

    def event(self, enable_timing: bool) -> Any:
        def query() -> bool:
            return len(self.spins) <= self.late

        def elapsed_time(_: Any) -> float:
            return 9.0 if query() else self.times[len(self.spins) - self.late - 1]

        return SimpleNamespace(record=lambda: None, query=query, synchronize=lambda: None, elapsed_time=elapsed_time)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Any:
    def simulate(late: int, times: list[float]) -> Gpu:
        gpu = Gpu(late, times)
        active = SimpleNamespace(get_empty_cache_for_benchmark=lambda: None, clear_cache=lambda cache: None)
        monkeypatch.setattr(bench, "driver", SimpleNamespace(active=active))
        monkeypatch.setattr(torch.cuda, "Event", gpu.event)
        monkeypatch.setattr(torch.cuda, "_sleep", gpu.spins.append)
        return gpu

    return simulate


def test_a_sample_that_waited_for_the_host_is_taken_again(simulated: Any) -> None:
    gpu = simulated(3, [0.01] * bench.SAMPLES)
    assert bench.do_bench(gpu.call, (0.5, 0.2, 0.8)) == pytest.approx([0.01] * 3)
    assert gpu.spins == [bench.BUSY_CYCLES * factor for factor in (1, 2, 4, *[8] * bench.SAMPLES)]


def test_a_host_that_is_always_late_ends_the_search_nevertheless(simulated: Any) -> None:
    gpu = simulated(1000, [])
    assert bench.do_bench(gpu.call, (0.5,)) == [9.0]
    assert max(gpu.spins) == bench.MOST_CYCLES


@pytest.mark.parametrize(("ms", "samples"), [(0.01, 20), (10.0, 10), (60.0, 3), (500.0, 3)])
def test_slow_kernels_are_sampled_less_often(simulated: Any, ms: float, samples: int) -> None:
    gpu = simulated(0, [ms] * bench.SAMPLES)
    bench.do_bench(gpu.call, (0.5,))
    assert gpu.calls == samples + 1


@pytest.mark.gpu
def test_a_slow_launch_does_not_lengthen_a_kernel() -> None:
    def call() -> None:
        time.sleep(3e-4)
        torch.cuda._sleep(20_000)

    median, *_ = bench.do_bench(call, (0.5, 0.2, 0.8))
    assert 0.005 < median < 0.05
