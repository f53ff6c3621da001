"""Real measurements: sleeps on the CPU, torch on a GPU."""

from __future__ import annotations

import re
import time

import pytest
import torch
from tries import passes_once

from suite.timing import Call, measure, median
from suite.timing.recorder_wall import WallRecorder


def nothing() -> None: ...


def test_wall_time_excludes_the_preparation() -> None:
    def excluded(_: int) -> None:
        recorder = WallRecorder()
        recorder.sample("a", lambda: time.sleep(0.05), lambda: time.sleep(0.002))
        (sample,) = recorder.collect()
        assert 2000 <= sample.us < 20_000
        assert sample.activities is None

    passes_once(excluded, range(5))


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_sleep_on_the_cpu_takes_its_time(cache: str) -> None:
    def takes_its_time(_: int) -> None:
        slept: dict[float, list[float]] = {0.002: [], 0.004: []}

        def sleep(seconds: float) -> None:
            begin = time.perf_counter()
            time.sleep(seconds)
            slept[seconds].append(1e6 * (time.perf_counter() - begin))  # longer on a busy machine

        calls = [
            Call("two", lambda: sleep(0.002), nothing_of, vendor=True),
            Call("four", nothing, lambda _: sleep(0.004)),
        ]
        timings = measure(calls, device=torch.device("cpu"), cache=cache, budget_s=0.2, interval=0.05)
        two, four = timings["two"], timings["four"]
        assert two.recorder == "wall"
        assert "CPU" in two.recorder_reason
        assert 2000 <= two.device_us < 1.75 * median(slept[0.002])
        assert 4000 <= four.device_us < 1.6 * median(slept[0.004])
        assert 0.35 < four.vs_best < 0.9
        assert four.dispatch_us < 1000 < 4000 <= four.latency_us
        assert two.dispatch_us >= 2000
        assert two.kernels is None

    passes_once(takes_its_time, range(4))


def nothing_of(result: object) -> None: ...


def test_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="'meta'"):
        measure([], device=torch.device("meta"))


@pytest.mark.gpu
def test_torch_on_the_gpu() -> None:
    device = torch.device("cuda")
    a = torch.randn(2**24, device=device)
    calls = [
        Call("one", lambda: a + 1, lambda _: torch.cuda.synchronize(), vendor=True),
        Call("two", lambda: (a + 1) + 1, lambda _: torch.cuda.synchronize()),
    ]
    timings = measure(calls, device=device, budget_s=0.3)
    if timings["one"].recorder != "cupti":
        pytest.skip(f"CUPTI: {timings['one'].recorder_reason}")
    assert (timings["one"].kernels, timings["two"].kernels) == (1.0, 2.0)
    assert timings["one"].device_us < timings["two"].device_us < 3 * timings["one"].device_us
    assert timings["one"].latency_us > timings["one"].device_us


@pytest.mark.gpu
def test_the_kernels_of_a_gpu_are_named() -> None:
    a = torch.randn(2**24, device="cuda")
    found = measure(
        [Call("add", lambda: a + 1, lambda _: torch.cuda.synchronize())], device=torch.device("cuda"), budget_s=0.1
    )["add"]
    if found.recorder != "cupti":
        pytest.skip(f"CUPTI: {found.recorder_reason}")
    assert re.fullmatch(r"\w*elementwise_kernel<.*> \[\d+ x \d+\]", found.kernels_run)
    assert re.search(
        r"^void at::native::.* \(grid \d+x1x1, block \d+x1x1, \d+ registers, \d+ bytes", found.kernel_details
    )
    assert found.occupancy is not None
    assert 0.25 <= found.occupancy <= 1


@pytest.mark.two_gpus
def test_what_the_other_gpu_does_is_not_counted() -> None:
    here, there = (torch.randn(2**24, device=f"cuda:{index}") for index in (1, 0))

    def both() -> None:
        there.add(1).add(1).add(1)
        here.add(1)

    def wait(_: object) -> None:
        for index in (0, 1):
            torch.cuda.synchronize(index)

    assert torch.cuda.current_device() == 0
    calls = [Call("alone", lambda: here.add(1), wait), Call("both", both, wait)]
    timings = measure(calls, device=torch.device("cuda", 1), budget_s=0.3)
    if timings["alone"].recorder != "cupti":
        pytest.skip(f"CUPTI: {timings['alone'].recorder_reason}")
    assert (timings["alone"].kernels, timings["both"].kernels) == (1.0, 1.0)
    assert timings["both"].device_us < 1.3 * timings["alone"].device_us
