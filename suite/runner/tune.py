"""tune(): searches configurations in a worker, case by case, and keeps what it finds in the file of the device."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite import hardware
from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.core.text import one_line
from suite.frameworks.triton import tuned
from suite.hardware.device import Device
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.runner.plan import Job
from suite.worker.pool import Pool, WorkerDiedError, WorkerTimeoutError
from suite.worker.protocol import Failed, TunedKernel, TuneRequest

NOTHING = "nothing to tune"


@dataclass(frozen=True)
class Line:
    """What came of one implementation: on one case, or on none if it has nothing to tune or cannot run here.

    `status` is `ok`, `nothing to tune`, `unsupported`, `unavailable`, `error` or `timeout`.
    """

    implementation: str
    case: Case | None
    status: str
    about: str

    @property
    def failed(self) -> bool:
        return self.status in ("error", "timeout")

    def __str__(self) -> str:
        case = f"{self.case.label} {self.case.dtype} {self.case.precision}  " if self.case is not None else ""
        return f"{case}{self.implementation}  {self.status}  {self.about}".rstrip()


def tune(
    jobs: Sequence[Job],
    device: Device,
    *,
    seed: int,
    timeout_s: float,
    on_line: Callable[[Line], None],
    on_step: Callable[[str], None],
) -> Path:
    """Search for every case and implementation of `jobs`. What is found is in the returned file as soon as it is found.

    Raises `UsageError` without a GPU, `ResultsError` for a file that is damaged or cannot be written.
    """
    if device.type != "cuda":
        raise UsageError("tune needs an NVIDIA GPU, on which it measures; this is a CPU")
    tuned.find(device.name)  # a damaged file is met before any work
    facts = next((each for each in hardware.devices() if each["index"] == device.index), {})
    with Pool(device) as pool:
        for job in jobs:
            lines = []
            for line in job.implementations:
                obstacle = (NOTHING, "") if not tunable(line) else line.obstacle(device)
                if obstacle is None:
                    lines.append(line)
                else:
                    on_line(Line(line.name, None, *obstacle))
            for case in job.cases:
                for line in lines:
                    if (obstacle := line.obstacle(device, case)) is not None:
                        on_line(Line(line.name, case, *obstacle))
                        continue
                    on_step(f"{case.operation} {case.label} {case.dtype} {case.precision}: tuning {line.name}")
                    result, entries = _ask(pool, line, case, seed, timeout_s)
                    if entries:
                        tuned.add(entries, device.name, str(facts.get("driver") or ""))
                    on_line(result)
    return tuned.path_for(device.name)


def tunable(implementation: Implementation) -> bool:
    """Whether its file says which configurations to try. Read without importing it."""
    source = ROOT / f"{implementation.module.replace('.', '/')}.py"
    return any(
        isinstance(node, ast.FunctionDef) and node.name == tuned.SPACE
        for node in ast.parse(source.read_text(encoding="utf-8")).body
    )


def _ask(pool: Pool, line: Implementation, case: Case, seed: int, timeout_s: float) -> tuple[Line, list[tuned.Entry]]:
    """The search in the worker, which is replaced if it breaks."""
    try:
        reply = pool.ask(TuneRequest(case, line.reference, seed), timeout_s=timeout_s)
    except WorkerDiedError as error:
        return Line(line.name, case, "timeout" if isinstance(error, WorkerTimeoutError) else "error", str(error)), []
    if isinstance(reply, Failed):
        pool.discard()  # an error on the device can outlive the call that caused it
        return Line(line.name, case, "error", one_line(reply.reason)), []
    if reply.status != "ok":
        return Line(line.name, case, reply.status, one_line(reply.reason)), []
    if not reply.found:
        return Line(line.name, case, NOTHING, "no autotuner was asked"), []
    return Line(line.name, case, "ok", "; ".join(map(_text, reply.found))), [each.entry for each in reply.found]


def _text(found: TunedKernel) -> str:
    """`BLOCK_M=128, ...: 176.2 us, 1.032 x the short list's 181.9 us (BLOCK_M=64, ...); 43 tried, 2 failed`."""
    entry, best, short_list = found.entry, one_line(found.config), one_line(found.short_list)
    counts = [f"{entry.candidates} tried"]
    counts += [f"{count} {kind}" for kind, count in (("failed", found.failed), ("wrong", found.wrong)) if count]
    against = f"{entry.short_list_us / entry.us:.3f} x the short list's {entry.short_list_us:g} us ({short_list})"
    if best == short_list:
        against = "the short list's choice"
    return f"{best}: {entry.us:g} us, {against}; {', '.join(counts)}"
