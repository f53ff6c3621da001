"""Before a run, what it needs is built by as many processes as there are cores: CUDA sources, Triton's kernels, and
XLA's programs of the telling cases, which are never timed.

The rows find it in the caches. Nothing is timed meanwhile, and no configuration chosen. A marker in the cache folder
says what is there, so that a later run begins at once. What fails here fails again in its row, which says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from suite import hardware, ops
from suite.core.paths import ROOT
from suite.hardware import host
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.results.row import Mode
from suite.runner.options import Options
from suite.runner.plan import Job
from suite.worker.child import HASTY_KILL_S
from suite.worker.pool import Pool, WorkerDiedError
from suite.worker.process import WorkerProcess
from suite.worker.protocol import BuildReply, BuildRequest

Telling = Literal["no", "too", "only"]
LEAST = 4
"""Builds that are worth the start of several processes."""
PROCESS_BYTES = 2**30
"""Memory of the device that a process takes beside the operands: the context, and what a call allocates."""
WAIT_S = 0.2


@dataclass(frozen=True)
class Build:
    """The first call of one implementation, on the first of these cases that it covers."""

    cases: tuple[Case, ...]
    implementation: Implementation
    telling: Telling = "no"

    def digest(self, device_name: str, sources: str) -> str:
        """Names the marker: all that the result depends on, but for compilers."""
        caches = [os.environ.get(name, "") for name in ("TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "CXX")]
        names = [self.implementation.name, self.implementation.versions(), device_name, sources]
        return hashlib.sha256(json.dumps([repr(self.cases), self.telling, *names, *caches]).encode()).hexdigest()[:32]


def builds(jobs: Sequence[Job], pool: Pool, options: Options) -> Iterator[Build]:
    """What is worth building ahead, what takes longest first."""
    device = pool.device
    for how in ("once", "arithmetic", "each", "telling"):
        for job in jobs:
            for implementation in job.implementations:
                adapter = implementation.adapter
                if implementation.is_external or adapter.builds.get(device.type) != how:
                    continue
                if options.native_only and adapter.mode(device) != Mode.NATIVE:
                    continue
                cases = [case for case in job.cases if implementation.obstacle(device, case) is None]
                yield from _builds_of(implementation, cases, how, options.telling)


def _builds_of(implementation: Implementation, cases: Sequence[Case], how: str, telling: bool) -> Iterator[Build]:
    if how in ("once", "arithmetic"):
        # Each arithmetic may need a library of its own, and telling cases others, where the size chooses the kernel.
        arithmetics: dict[tuple[str, str], list[Case]] = {}
        for case in cases:
            arithmetics.setdefault(("", "") if how == "once" else (case.dtype, case.precision), []).append(case)
        for those in arithmetics.values():
            yield Build(tuple(those), implementation, "too" if telling else "no")
        return
    told: set[tuple[str, str]] = set()
    for case in cases:
        first = telling and (case.dtype, case.precision) not in told
        told.add((case.dtype, case.precision))
        if how == "each":
            yield Build((case,), implementation, "too" if first else "no")
        elif first:
            yield Build((case,), implementation, "only")


def build_ahead(jobs: Sequence[Job], pool: Pool, options: Options, on_begin: Callable[[str], None]) -> None:
    """Build what `jobs` need on the device of `pool`, unless an earlier run has. Raises nothing for what fails."""
    folder = _markers()
    if folder is None:
        return
    folders = {each.adapter.folder for job in jobs for each in job.implementations}
    sources = {name: _sources(ROOT / name) for name in folders}
    left: queue.SimpleQueue[tuple[Build, Path]] = queue.SimpleQueue()
    largest, count = 0, 0
    for build in builds(jobs, pool, options):
        marker = folder / build.digest(pool.device.name, sources[build.implementation.adapter.folder])
        if not marker.exists():
            left.put((build, marker))
            largest, count = max(largest, *(2 * ops.operation(case).bytes(case) for case in build.cases)), count + 1
    processes = min(count, _processes(pool, largest))
    if count < LEAST or processes < 2:
        return
    on_begin(f"building {count} kernels ahead, {processes} at a time")
    _build_all(left, pool, processes, options)


def _processes(pool: Pool, largest_bytes: int) -> int:
    """One for each core, as far as memory goes."""
    free = hardware.memory_bytes(pool.device.type, pool.device.index)
    fit = host.cores() if free is None else free // (largest_bytes + PROCESS_BYTES)
    return int(min(host.cores(), fit))


def _build_all(left: queue.SimpleQueue[tuple[Build, Path]], pool: Pool, processes: int, options: Options) -> None:
    workers: list[WorkerProcess] = []
    threads: list[threading.Thread] = []
    try:
        with suppress(WorkerDiedError):
            for _ in range(processes):
                workers.append(pool.start())
        for worker in workers:
            threads.append(threading.Thread(target=_work, args=(worker, left, options), daemon=True))
            threads[-1].start()
        for thread in threads:
            while thread.is_alive():
                thread.join(WAIT_S)
    finally:
        for worker in workers:
            worker.close(HASTY_KILL_S)
        for thread in threads:
            thread.join()


def _work(worker: WorkerProcess, left: queue.SimpleQueue[tuple[Build, Path]], options: Options) -> None:
    """Let one worker build, until nothing is left or it dies."""
    with suppress(WorkerDiedError, OSError, ValueError, queue.Empty):
        while True:
            build, marker = left.get_nowait()
            try:
                _build(worker, build, options)
            finally:
                marker.touch()


def _build(worker: WorkerProcess, build: Build, options: Options) -> None:
    for case in build.cases:
        request = BuildRequest(case, build.implementation.reference, options.seed, build.telling)
        reply = worker.ask(request, options.timeout_s)
        if not isinstance(reply, BuildReply) or reply.covered:
            return


def _markers() -> Path | None:
    """The folder of the markers, beside the caches; None where there is no private one."""
    from cuda_ref import _cache

    try:
        return Path(_cache.private("ahead"))
    except _cache.BuildError:
        return None


def _sources(folder: Path) -> str:
    """A hash of a folder of kernels."""
    everything = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            everything.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return everything.hexdigest()
