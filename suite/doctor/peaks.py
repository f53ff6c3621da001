"""Measures what this very device reaches: bandwidth of plain streams, and rates of large products by arithmetic.

By the suite's own recorder, with a cold cache, on random normal numbers, and through the vendor's library: these are
the ceilings that a kernel can be held against where its maker cites none (`hardware/measured.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.core.errors import SuiteError
from suite.doctor.local_device import array_bytes, one_line, torch_device
from suite.hardware.device import Device
from suite.hardware.measured import MEMORY, Reading, document, fastest
from suite.implementations import builtin
from suite.results.render import number

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from suite.timing import Timing

STREAM_BYTES = {"cuda": 8 << 30, "cpu": 1 << 30}
"""Size of a stream's array, if a sixteenth of the memory allows. What the cache still holds of it when a kernel ends,
unwritten, is then less than a hundredth."""
SIZES = {"cuda": (4096, 8192, 16384), "cpu": (512, 1024, 2048, 4096)}
LONGEST_US = 100_000.0
"""Products expected to take longer are left out."""
ARITHMETICS = (
    ("fp32", "float32", "ieee"),
    ("tf32", "float32", "tf32"),
    ("fp16", "float16", "ieee"),
    ("bf16", "bfloat16", "ieee"),
)
BUDGET_S = 0.5

Tell = Callable[[str], None]


def measure(where: Device, environment: Mapping[str, Any], tell: Tell = lambda doing: None) -> dict[str, Any]:
    """The contents of `limits.json` for one device. Raises `SuiteError` where nothing can be measured."""
    device = torch_device(where)
    free = hardware.memory_bytes(where.type, where.index)
    tell("streams")
    readings = _streams(device, free)
    products, not_measured = _products(device, free, tell)
    return document(where.name, readings + products, not_measured, environment)


def _streams(device: torch.device, free: int | None) -> list[Reading]:
    """Read, write, copy (read and write) and addition (two reads and a write), all timed together."""
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
    timings = _time({name: issue for name, (_, issue) in streams.items()}, device, len(streams) * BUDGET_S)
    mib = size / 2**20
    return [
        _reading(MEMORY, f"{name}, {mib:,.0f} MiB an array", arrays * size, timings[name])
        for name, (arrays, _) in streams.items()
    ]


def _products(device: torch.device, free: int | None, tell: Tell) -> tuple[list[Reading], dict[str, str]]:
    """Square products in every arithmetic that works here; why the others do not."""
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
            if last is not None and last.device_us * (2 * size**3 / last.work) > LONGEST_US:
                break
            tell(f"{name}, {size} x {size} x {size}")
            try:
                timing = _time({name: prepare(size)}, device, BUDGET_S)[name]
            except SuiteError:
                raise
            except (RuntimeError, NotImplementedError, ValueError, AttributeError, TypeError) as error:
                not_measured[name] = one_line(error)
                break
            last = _reading(name, f"M=N=K={size}", 2 * size**3, timing)
            readings.append(last)
    return readings, not_measured


def _product(device: torch.device, dtype: str, precision: str, size: int) -> Callable[[], object]:
    """By the line that stands for the vendor in `compare`, which pins the arithmetic."""
    import torch

    line = next(i for i in builtin.implementations("matmul") if i.name == "torch")
    a, b = (torch.randn(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2))
    return partial(line.load().matmul, a, b, precision=precision)


def _product_fp8(device: torch.device, size: int) -> Callable[[], object]:
    """e4m3 inputs, float32 sums, rounded to bfloat16. The second operand has to be stored transposed."""
    import torch

    a, b = (torch.randn(size, size, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=device)
    return partial(torch._scaled_mm, a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False)


def _time(work: Mapping[str, Callable[[], object]], device: torch.device, budget_s: float) -> dict[str, Timing]:
    import torch

    from suite import timing

    wait = (lambda _: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda _: None)
    calls = [timing.Call(name, issue, wait) for name, issue in work.items()]
    return timing.measure(calls, device=device, budget_s=budget_s)


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


HEADS = ("ceiling", "unit", "measured", "datasheet", "share", "by")
READING_HEADS = (
    "ceiling",
    "reading",
    "device us",
    "95% interval",
    "rate",
    "unit",
    "samples",
    "SM clock",
    "clocks held by",
)
NUMERIC = frozenset(HEADS[2:5]) | frozenset(READING_HEADS[2:5]) | {"samples", "SM clock"}


def rows(contents: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One line a ceiling: what was measured, beside what the maker cites, and by which reading; or why it was not."""
    cited = hardware.peaks(contents["device"])
    lines = [_row(MEMORY, contents["gb_per_s"], contents, cited.gb_per_s if cited else None)]
    for name, rate in contents["tflops"].items():
        lines.append(_row(name, rate, contents, cited.tflops.get(name) if cited else None))
    lines += [(name, UNITS[1], "", "", "", reason) for name, reason in contents["not_measured"].items()]
    return lines


def _row(ceiling: str, measured: float, contents: Mapping[str, Any], cited: float | None) -> tuple[str, ...]:
    best = fastest(_readings(contents), ceiling)
    by = "" if best is None else best.name if best.rate >= measured else "fp32, in which it can be computed"
    share = "" if cited is None else f"{100 * measured / cited:.0f}%"
    return ceiling, _unit(ceiling), number(measured, 4), number(cited, 4), share, by


def reading_rows(contents: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One line a reading."""
    return [
        (
            r.ceiling,
            r.name,
            number(r.device_us, 5),
            "" if r.device_us_low is None else f"{number(r.device_us_low, 5)} to {number(r.device_us_high, 5)}",
            number(r.rate, 4),
            _unit(r.ceiling),
            str(r.samples),
            number(r.clock_sm_mhz, 4),
            r.clock_reasons,
        )
        for r in _readings(contents)
    ]


def _readings(contents: Mapping[str, Any]) -> list[Reading]:
    known = {field.name for field in fields(Reading)}
    return [Reading(**{k: v for k, v in reading.items() if k in known}) for reading in contents["readings"]]


UNITS = ("GB/s", "TFLOP/s")


def _unit(ceiling: str) -> str:
    return UNITS[0] if ceiling == MEMORY else UNITS[1]


def tables(contents: Mapping[str, Any]) -> list[Table]:
    """The ceilings, then every reading, for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    shown = []
    for title, heads, body in (
        (f"What {contents['device']} reaches", HEADS, rows(contents)),
        ("Readings", READING_HEADS, reading_rows(contents)),
    ):
        table = Table(title=escape(title), title_justify="left")
        for head in heads:
            table.add_column(head, justify="right" if head in NUMERIC else "left", overflow="fold")
        for line in body:
            table.add_row(*map(escape, line))
        shown.append(table)
    return shown


def plain_lines(contents: Mapping[str, Any]) -> list[str]:
    """The same for a log."""
    lines = []
    for ceiling, name, us, interval, rate, unit, samples, clock, held in reading_rows(contents):
        clocks = f", SM clock {clock} MHz, held by {held or 'nothing'}" if clock else ""
        lines.append(f"{ceiling}, {name}: {us} us ({interval}), {rate} {unit}, {samples} samples{clocks}")
    for ceiling, unit, measured, cited, share, by in rows(contents):
        cite = f", datasheet {cited}: {share}" if cited else ""
        lines.append(f"{ceiling}: {measured} {unit} ({by}){cite}" if measured else f"{ceiling}: not measured: {by}")
    return lines
