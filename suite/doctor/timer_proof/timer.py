"""Runs the proof of the timer on a GPU and keeps the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from suite import frameworks, hardware
from suite.core.errors import SuiteError, UsageError
from suite.core.files import write_atomically
from suite.doctor.local_device import array_bytes, one_line, torch_device
from suite.doctor.timer_proof import checks, cost
from suite.doctor.timer_proof.checks import OFF, Check, Line
from suite.hardware.device import Device
from suite.timing.sampling import no_garbage_collection
from suite.timing.target import CudaTarget, Target

ARRAY_BYTES = 2 << 30
"""Size of an array, if a sixteenth of the memory allows."""
CLOCK_MHZ = 1500.0
"""Taken for the highest SM clock where the driver does not tell it: then a spin is not as long as it is called."""

Tell = Callable[[str], None]


def prove(
    where: Device, on_line: Callable[[Line], None] = lambda line: None, tell: Tell = lambda doing: None
) -> list[Line]:
    """Every line of the proof. Raises `UsageError` on a CPU, `SuiteError` where there is no recorder."""
    if where.type != "cuda":
        raise UsageError("--timer: it is a GPU's activity records that are proved; device_us of a CPU is wall time")
    facts = next(each for each in hardware.devices() if each["index"] == where.index)
    for name in ("triton", "jax"):
        frameworks.get(name).prepare(where)
    device = torch_device(where)

    import torch

    from suite.doctor.timer_proof.groups import Spins, makers
    from suite.doctor.timer_proof.work import Arena, kits
    from suite.timing.recorder_cupti import why_not

    torch.cuda.synchronize(device)
    if reason := why_not():
        raise SuiteError(f"there is no recorder to prove: {reason}")
    tell("building the work")
    arena = Arena(device, array_bytes(ARRAY_BYTES, hardware.memory_bytes("cuda", where.index)) // 4)
    found, lines = kits(where, arena)
    for line in lines:
        on_line(line)
    l2_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
    clock_mhz = float(facts["clock_sm_max_mhz"] or CLOCK_MHZ)
    timings: dict[str, Any] = {}
    for title, make in makers(found, arena, clock_mhz, l2_bytes):
        tell(title)
        for line in _group(title, make, device, timings):
            lines.append(line)
            on_line(line)
    tell("what recording costs")
    lines.append(_cost(CudaTarget(device), partial(torch.cuda._sleep, Spins(clock_mhz).of(100)), "a spin of 100 us"))
    on_line(lines[-1])
    return lines


def _cost(target: Target, work: Callable[[], None], what: str) -> Line:
    with no_garbage_collection():
        try:
            return cost.line(target, work, what)
        except Exception as error:  # of the recorder, or of the device
            return checks.without("torch", f"the wall time of a sample of {what}, recorded", OFF, one_line(error))


def _group(title: str, make: Callable[[], Any], device: Any, timings: dict[str, Any]) -> list[Line]:
    """The lines of one group. A group that fails is lines that are off, and the others go on."""
    from suite import timing

    judged: tuple[Check, ...] = ()
    try:
        group = make()
        judged = group.checks
        if group.calls:
            timings |= timing.measure(group.calls, device=device, cache=group.cache, budget_s=group.budget_s)
    except Exception as error:  # of the recorder, of a framework, or of the device
        reason = one_line(error)
        failed = [(check.framework, check.work) for check in judged] or [("", title)]
        return [checks.without(framework, work, OFF, reason) for framework, work in failed]
    return [checks.judge(check, timings) for check in judged]


def write(folder: Path, lines: list[Line], environment: Mapping[str, Any]) -> None:
    """`timer.csv` and `timer.md`. Raises `ResultsError`."""
    write_atomically(folder / "timer.csv", checks.to_csv(lines))
    write_atomically(folder / "timer.md", checks.markdown(lines, environment))
