"""tune() finds the fastest configurations of autotuned kernels, case by case, and stores them in the device's file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from suite import hardware
from suite.core.errors import UsageError
from suite.core.least import NOTHING_MORE, Least
from suite.core.text import one_line
from suite.frameworks.triton import tuned
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.runner.plan import Job
from suite.worker.pool import Pool, WorkerDiedError, WorkerTimeoutError
from suite.worker.protocol import Failed, TunedKernel, TuneRequest, name_of

NOTHING = "nothing to tune"


@dataclass(frozen=True)
class Search:
    """The result of tuning one implementation on one case. `case` is None if the implementation cannot be tuned.

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
    least: Least = NOTHING_MORE,
    on_search: Callable[[Search], None],
    on_step: Callable[[str], None],
) -> Path:
    """Search the configurations of every implementation of `jobs` on every case. Returns the file of the device.

    Each result is written to the file at once. `least` is the least that is measured of each configuration that is not
    dropped. `on_search` is called with each result, `on_step` before each search.

    Raises `UsageError` without a GPU, `ResultsError` for a file that is damaged or cannot be written.
    """
    if device.type != "cuda":
        raise UsageError("tune needs an NVIDIA GPU, on which it measures; this is a CPU")
    tuned.find(device.name)  # raises for a damaged file, before any work
    facts = next((each for each in hardware.devices() if each["index"] == device.index), {})
    with Pool(device) as pool:
        for job in jobs:
            implementations = []
            for implementation in job.implementations:
                obstacle = implementation.obstacle(device) if tunable(implementation) else (NOTHING, "")
                if obstacle is None:
                    implementations.append(implementation)
                else:
                    on_search(Search(implementation.name, None, *obstacle))
            for case, implementation in product(job.cases, implementations):
                if (obstacle := implementation.obstacle(device, case)) is not None:
                    on_search(Search(implementation.name, case, *obstacle))
                    continue
                on_step(f"{case.operation} {case.label} {case.dtype} {case.precision}: tuning {implementation.name}")
                search, entries = _search(pool, TuneRequest(case, implementation.reference, seed, least), timeout_s)
                if entries:
                    tuned.add(entries, device.name, str(facts.get("driver") or ""))
                on_search(search)
    return tuned.path_for(device.name)


def tunable(implementation: Implementation) -> bool:
    """True if the implementation's file defines or imports `tuning_space`. The file is parsed, not imported."""
    variant = implementation.name.partition("/")[2]
    source = builtin.files(implementation.framework, implementation.operation)[variant]
    names: set[str] = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return tuned.SPACE in names


def _search(pool: Pool, request: TuneRequest, timeout_s: float) -> tuple[Search, list[tuned.Entry]]:
    """Run one search in the worker. A worker that breaks is replaced."""
    name, case = name_of(request.implementation), request.case
    try:
        reply = pool.ask(request, timeout_s=timeout_s)
    except WorkerDiedError as error:
        return Search(name, case, "timeout" if isinstance(error, WorkerTimeoutError) else "error", str(error)), []
    if isinstance(reply, Failed):
        pool.discard()  # an error on the device can outlive the call that caused it
        return Search(name, case, "error", one_line(reply.reason)), []
    if reply.status != "ok":
        return Search(name, case, reply.status, one_line(reply.reason)), []
    if not reply.found:
        return Search(name, case, NOTHING, "the call used no autotuner"), []
    return Search(name, case, "ok", "; ".join(map(_text, reply.found))), [each.entry for each in reply.found]


def _text(found: TunedKernel) -> str:
    """A sentence on one search.

    `BLOCK_M=128, ...: 176.2 us, 1.032 x the short list's 181.9 us (BLOCK_M=64, ...); 43 tried, 2 failed`.
    """
    entry, best, short_list = found.entry, one_line(found.config), one_line(found.short_list)
    counts = [f"{entry.candidates} tried"]
    counts += [f"{count} {kind}" for kind, count in (("failed", found.failed), ("wrong", found.wrong)) if count]
    against = f"{entry.short_list_us / entry.us:.3f} x the short list's {entry.short_list_us:g} us ({short_list})"
    if best == short_list:
        against = "the short list's choice"
    return f"{best}: {entry.us:g} us, {against}; {', '.join(counts)}"
