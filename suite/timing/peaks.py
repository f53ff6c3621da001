"""Measures the peaks of a device: bandwidth of simple streams, and rates of large matrix products by arithmetic.

They are timed with the suite's recorder and a cold cache, on random normal numbers, through torch and the vendor's
library, in passes until the fastest reading of a peak repeats (`settled`). The results replace missing datasheet peaks
(`hardware/measured_peaks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from suite.core.errors import SuiteError
from suite.core.text import error_line, one_line
from suite.hardware.device import array_bytes
from suite.hardware.measured_peaks import MEMORY, STABLE, Reading, document, fastest
from suite.implementations import builtin

if TYPE_CHECKING:
    import torch

    from suite.timing import Timing

STREAM_BYTES = {"cuda": 8 << 30, "cpu": 1 << 30}
"""Size of a stream's array, if a sixteenth of the memory is as large. At the end of a kernel, less than a hundredth of
such an array is still in the cache, not yet written back."""
SIZES: Mapping[str, Sequence[int]] = {"cuda": (4096, 8192, 16384), "cpu": (512, 1024, 2048, 4096)}
MAX_PRODUCT_US = 100_000.0
"""Limit of the expected time of a product, in us. Longer ones are left out."""
ARITHMETICS = (
    ("fp64", "float64", "ieee"),
    ("fp32", "float32", "ieee"),
    ("tf32", "float32", "tf32"),
    ("fp16", "float16", "ieee"),
    ("bf16", "bfloat16", "ieee"),
)
"""Name of the peak, dtype and precision."""
BUDGET_S = 0.25
"""Time for the samples of one call in a pass, in seconds."""
MIN_PASSES, MAX_PASSES, MAX_PASSES_S = 2, 6, 20.0
"""The least and the largest number of passes, and the time in seconds after which no further one begins."""

OnPhase = Callable[[str], None]
"""Called with a description of the next step."""


def measure(
    device: torch.device,
    name: str,
    free: int | None,
    environment: Mapping[str, Any],
    on_phase: OnPhase = lambda phase: None,
) -> dict[str, Any]:
    """Measure the peaks of one device called `name`, with `free` bytes. Returns the contents of `limits.json`.

    Raises `SuiteError` if nothing can be timed, or if a peak is not stable: something else uses the machine.
    """
    on_phase("streams")
    readings = settled(_streams(device, free))
    _refuse_unstable(name, readings)  # at once: a busy machine makes the products slow too
    products, not_measured = _products(device, free, on_phase)
    readings += products
    _refuse_unstable(name, readings)
    return document(name, readings, not_measured, environment)


def _refuse_unstable(name: str, readings: Sequence[Reading]) -> None:
    best = (fastest(readings, ceiling) for ceiling in dict.fromkeys(each.ceiling for each in readings))
    unstable = [each for each in best if each is not None and not each.is_stable]
    if unstable:
        found = "; ".join(f"{each.ceiling}: {each.spread_text}" for each in unstable)
        raise SuiteError(
            f"limits of {one_line(name)} are not stable, and not kept: {found}. At most {100 * STABLE:g}% is allowed; "
            "measure again while nothing else uses the machine"
        )


def settled(measure_once: Callable[[], Sequence[Reading]]) -> list[Reading]:
    """Measure in MIN_PASSES to MAX_PASSES passes until the fastest reading is stable, or MAX_PASSES_S have passed.

    Returns the fastest pass of each reading, with the difference to the second fastest.
    """
    passes: list[Sequence[Reading]] = []
    begin = perf_counter()
    while True:
        passes.append(measure_once())
        readings = [_fastest_pass(each) for each in zip(*passes, strict=True)]
        count, late = len(passes), perf_counter() - begin > MAX_PASSES_S
        if count == MAX_PASSES or (late and count >= MIN_PASSES) or max(readings, key=lambda each: each.rate).is_stable:
            return readings


def _fastest_pass(readings: Sequence[Reading]) -> Reading:
    best, *others = sorted(readings, key=lambda each: -each.rate)
    return replace(best, passes=len(readings), spread=best.rate / others[0].rate - 1 if others else None)


def _streams(device: torch.device, free: int | None) -> Callable[[], list[Reading]]:
    """Measures memory: read, write, copy (read and write) and addition (two reads and a write), timed in turns."""
    import torch

    size = array_bytes(STREAM_BYTES[device.type], free)
    x, y = (torch.randn(size // 4, device=device) for _ in range(2))
    out, total = torch.empty_like(x), torch.empty((), device=device)
    streams: dict[str, tuple[int, Callable[[], object]]] = {
        "read": (1, partial(torch.sum, x, dim=0, out=total)),
        "write": (1, partial(out.fill_, 1.0)),
        "copy": (2, partial(out.copy_, x)),
        "addition": (3, partial(torch.add, x, y, out=out)),
    }
    mib = size / 2**20

    def once() -> list[Reading]:
        timings = _time({name: issue for name, (_, issue) in streams.items()}, device)
        return [
            _reading(MEMORY, f"{name}, {mib:,.0f} MiB an array", arrays * size, timings[name])
            for name, (arrays, _) in streams.items()
        ]

    return once


def _products(device: torch.device, free: int | None, on_phase: OnPhase) -> tuple[list[Reading], dict[str, str]]:
    """Readings of square matrix products in every arithmetic that works, and the reasons why the others do not."""
    readings: list[Reading] = []
    not_measured: dict[str, str] = {}
    kinds: list[tuple[str, Callable[[int], Callable[[], object]]]] = [
        (name, partial(_product, device, dtype, precision)) for name, dtype, precision in ARITHMETICS
    ]
    if device.type == "cuda":
        kinds.append(("fp8", partial(_product_fp8, device)))
    for name, prepare in kinds:
        last: Reading | None = None
        for size in SIZES[device.type]:
            if free is not None and 16 * size * size > free // 4:
                break
            if last is not None and last.device_us * (2 * size**3 / last.work) > MAX_PRODUCT_US:
                break
            on_phase(f"{name}, {size} x {size} x {size}")
            try:
                last = settled(partial(_product_once, name, size, prepare(size), device))[0]
            except SuiteError:
                raise
            except (RuntimeError, NotImplementedError, ValueError, AttributeError, TypeError) as error:
                not_measured[name] = error_line(error)
                break
            readings.append(last)
    return readings, not_measured


def _product_once(name: str, size: int, issue: Callable[[], object], device: torch.device) -> list[Reading]:
    return [_reading(name, f"M=N=K={size}", 2 * size**3, _time({name: issue}, device)[name])]


def _product(device: torch.device, dtype: str, precision: str, size: int) -> Callable[[], object]:
    """A product by the implementation `torch`, which `compare` uses as the vendor's. It fixes the arithmetic."""
    import torch

    vendor = next(i for i in builtin.implementations("matmul") if i.name == "torch")
    a, b = (torch.randn(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2))
    return partial(vendor.load().matmul, a, b, precision=precision)


def _product_fp8(device: torch.device, size: int) -> Callable[[], object]:
    """A product of e4m3 inputs, accumulated in float32, with a bfloat16 result. The second operand is transposed."""
    import torch

    a, b = (torch.randn(size, size, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=device)
    return partial(torch._scaled_mm, a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False)


def _time(work: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, Timing]:
    import torch

    from suite import timing

    wait = (lambda _: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda _: None)
    calls = [timing.Call(name, issue, wait) for name, issue in work.items()]
    return timing.measure(calls, device=device, budget_s=BUDGET_S)


def _reading(ceiling: str, name: str, work: int, timing: Timing) -> Reading:
    if timing.device_us is None:
        raise SuiteError(f"{name} cannot be timed: {timing.error or timing.recorder_reason}")
    return Reading(
        ceiling,
        name,
        work,
        timing.device_us,
        timing.device_us_low,
        timing.device_us_high,
        timing.samples,
        timing.recorder,
        timing.clock_sm_mhz,
        timing.power_w,
        timing.clock_reasons,
    )
