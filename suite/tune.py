"""tune(): searches configurations in a worker, case by case, and keeps what it finds in the file of the device."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import hardware, tuned
from suite.backends import ROOT, Implementation
from suite.device import Device
from suite.errors import UsageError
from suite.isolate import Pool, WorkerDiedError, WorkerTimeoutError
from suite.op import Case
from suite.select import Job
from suite.text import one_line

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
                        tuned.keep(entries, device.name, str(facts.get("driver") or ""))
                    on_line(result)
    return tuned.path_for(device.name)


def tunable(implementation: Implementation) -> bool:
    """Whether its file defines or imports `tuning_space`. Read without importing it."""
    source = ROOT / f"{implementation.module.replace('.', '/')}.py"
    names: set[str] = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return tuned.SPACE in names


def _ask(pool: Pool, line: Implementation, case: Case, seed: int, timeout_s: float) -> tuple[Line, list[tuned.Entry]]:
    """The search in the worker, which is replaced if it breaks."""
    request = {"do": "tune", "case": case.to_json(), "implementation": line.name, "seed": seed}
    try:
        reply = pool.ask(request, timeout_s=timeout_s)
    except WorkerDiedError as error:
        return Line(line.name, case, "timeout" if isinstance(error, WorkerTimeoutError) else "error", str(error)), []
    if reply["status"] == "error":
        pool.discard()  # an error on the device can outlive the call that caused it
    if reply["status"] != "ok":
        return Line(line.name, case, str(reply["status"]), one_line(reply["reason"])), []
    found = reply["found"]
    if not found:
        return Line(line.name, case, NOTHING, "no autotuner was asked"), []
    entries = [tuned.entry(each["entry"]) for each in found]
    texts = [_text(entry, each) for entry, each in zip(entries, found, strict=True)]
    return Line(line.name, case, "ok", "; ".join(texts)), entries


def _text(entry: tuned.Entry, found: dict[str, Any]) -> str:
    """`BLOCK_M=128, ...: 176.2 us, 1.032 x the short list's 181.9 us (BLOCK_M=64, ...); 43 tried, 2 failed`."""
    best, short_list = one_line(found["config"]), one_line(found["short_list"])
    counts = [f"{entry.candidates} tried"]
    counts += [f"{found[kind]} {kind}" for kind in ("failed", "wrong") if found[kind]]
    against = f"{entry.short_list_us / entry.us:.3f} x the short list's {entry.short_list_us:g} us ({short_list})"
    if best == short_list:
        against = "the short list's choice"
    return f"{best}: {entry.us:g} us, {against}; {', '.join(counts)}"
