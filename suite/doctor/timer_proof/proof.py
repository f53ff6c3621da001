"""Runs the proof of the timer on a GPU and writes its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite import frameworks, hardware
from suite.core.errors import SuiteError, UsageError
from suite.core.files import write_atomically
from suite.core.text import error_line
from suite.doctor.local_device import torch_device
from suite.doctor.timer_proof import checks, overhead, render
from suite.doctor.timer_proof.checks import OFF, Check, ProofRow
from suite.hardware.device import Device, array_bytes
from suite.timing.sampling import no_garbage_collection
from suite.timing.target import CudaTarget, Target

if TYPE_CHECKING:
    from suite.doctor.timer_proof.groups import Group
    from suite.timing import Timing

ARRAY_BYTES = 2 << 30
"""Size of an array, if a sixteenth of the memory is as large."""
CLOCK_MHZ = 1500.0
"""Assumed highest SM clock if NVML does not report it. Spins then differ from the length in their name."""

OnPhase = Callable[[str], None]
"""Called with a description of the next step."""


def prove(
    where: Device,
    on_row: Callable[[ProofRow], None] = lambda row: None,
    on_phase: OnPhase = lambda phase: None,
) -> list[ProofRow]:
    """Run all checks and return their rows; `on_row` also receives each row as soon as it is known.

    Raises `UsageError` on a CPU, `SuiteError` without a recorder.
    """
    if where.type != "cuda":
        raise UsageError("--timer: it is a GPU's activity records that are proved; device_us of a CPU is wall time")
    facts = next(each for each in hardware.devices() if each["index"] == where.index)
    for name in ("triton", "jax"):
        frameworks.get(name).prepare(where)
    device = torch_device(where)

    import torch

    from suite.doctor.timer_proof.groups import Spins, group_makers
    from suite.doctor.timer_proof.work import Arena, kits
    from suite.timing.recorder_cupti import unavailable_reason

    torch.cuda.synchronize(device)
    if reason := unavailable_reason():
        raise SuiteError(f"there is no recorder to prove: {reason}")
    on_phase("building the work")
    arena = Arena(device, array_bytes(ARRAY_BYTES, hardware.memory_bytes("cuda", where.index)) // 4)
    found, rows = kits(where, arena)
    for row in rows:
        on_row(row)
    l2_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
    clock_mhz = float(facts["clock_sm_max_mhz"] or CLOCK_MHZ)
    timings: dict[str, Timing] = {}
    for title, make in group_makers(found, arena, clock_mhz, l2_bytes):
        on_phase(title)
        for row in _rows_of_group(title, make, device, timings):
            rows.append(row)
            on_row(row)
    on_phase("what recording costs")
    spin = partial(torch.cuda._sleep, Spins(clock_mhz).cycles(100))
    rows.append(_overhead_row(CudaTarget(device), spin, "a spin of 100 us"))
    on_row(rows[-1])
    return rows


def _overhead_row(target: Target, work: Callable[[], None], what: str) -> ProofRow:
    with no_garbage_collection():
        try:
            return overhead.overhead_row(target, work, what)
        except Exception as error:  # from the recorder or the device
            name = f"the wall time of a sample of {what}, recorded"
            return checks.without_times("torch", name, OFF, error_line(error))


def _rows_of_group(title: str, make: Callable[[], Group], device: Any, timings: dict[str, Timing]) -> list[ProofRow]:
    """Make, time and judge one group; adds to `timings`. A failure becomes rows that are off."""
    from suite import timing

    judged: tuple[Check, ...] = ()
    try:
        group = make()
        judged = group.checks
        if group.calls:
            share = group.budget_s / len(group.calls)
            timings |= timing.measure(group.calls, device=device, cache=group.cache, budget_s=share)
    except Exception as error:  # from the recorder, a framework or the device
        reason = error_line(error)
        failed = [(check.framework, check.work) for check in judged] or [("", title)]
        return [checks.without_times(framework, work, OFF, reason) for framework, work in failed]
    return [checks.judge(check, timings) for check in judged]


def write(folder: Path, rows: list[ProofRow], environment: Mapping[str, Any]) -> None:
    """Write `timer.csv` and `timer.md`. Raises `ResultsError`."""
    write_atomically(folder / "timer.csv", render.to_csv(rows))
    write_atomically(folder / "timer.md", render.markdown(rows, environment))
