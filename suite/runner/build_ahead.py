"""Builds, before a run, the code that the run needs: CUDA sources, Triton kernels, and XLA programs of telling cases.

As many processes build as there are cores, and a build waits until the device's memory holds its operands beside
those of the others. The run then finds the results in the compilers' caches. While they build, nothing is timed and no
configuration is chosen. A marker in the cache folder records each finished build, so that a
later run skips it. A build that fails here fails again when its row is checked, and that row reports the error.
XLA programs are built for the telling cases alone, because these are never timed.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from suite import hardware, ops
from suite.core.paths import ROOT
from suite.hardware import host
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.processes.child import SHORT_KILL_S
from suite.results.row import Mode
from suite.runner.options import Options
from suite.runner.plan import Job
from suite.worker.pool import Pool, Worker, WorkerDiedError
from suite.worker.protocol import BuildReply, BuildRequest

Telling = Literal["no", "too", "only"]
MIN_BUILDS = 4
"""Several processes are started only for at least this number of builds."""
PROCESS_BYTES = 2**30
"""Device memory that a process needs beside the operands: for its context and for the allocations of a call."""
WAIT_S = 0.2


@dataclass(frozen=True)
class Build:
    """The first call of one implementation, made on the first of `cases` that it covers."""

    cases: tuple[Case, ...]
    implementation: Implementation
    telling: Telling = "no"

    @property
    def bytes(self) -> int:
        """Device memory for the operands of a call, and as much for its intermediate results."""
        return max(int(2 * ops.operation(case).bytes(case)) for case in self.cases)

    def digest(self, device_name: str, sources: str) -> str:
        """The name of the build's marker: a hash of everything that the result depends on, except the compilers."""
        caches = [os.environ.get(name, "") for name in ("TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR", "CXX")]
        names = [self.implementation.name, self.implementation.versions(), device_name, sources]
        return hashlib.sha256(json.dumps([repr(self.cases), self.telling, *names, *caches]).encode()).hexdigest()[:32]


def builds(jobs: Sequence[Job], pool: Pool, options: Options) -> Iterator[Build]:
    """The builds that save time in the run, the slowest kind first."""
    device = pool.device
    for unit in ("once", "arithmetic", "each", "telling"):
        for job in jobs:
            for implementation in job.implementations:
                adapter = implementation.adapter
                if implementation.is_external or adapter.builds.get(device.type) != unit:
                    continue
                if options.native_only and adapter.mode(device) != Mode.NATIVE:
                    continue
                cases = [case for case in job.cases if implementation.obstacle(device, case) is None]
                yield from _implementation_builds(implementation, cases, unit, options.telling)


def _implementation_builds(
    implementation: Implementation, cases: Sequence[Case], unit: str, telling: bool
) -> Iterator[Build]:
    if unit in ("once", "arithmetic"):
        # Each arithmetic may need its own library; telling cases may need others, where the size selects the kernel.
        arithmetics: dict[tuple[str, str], list[Case]] = {}
        for case in cases:
            arithmetics.setdefault(("", "") if unit == "once" else (case.dtype, case.precision), []).append(case)
        for group in arithmetics.values():
            yield Build(tuple(group), implementation, "too" if telling else "no")
        return
    seen: set[tuple[str, str]] = set()
    for case in cases:
        first = telling and (case.dtype, case.precision) not in seen
        seen.add((case.dtype, case.precision))
        if unit == "each":
            yield Build((case,), implementation, "too" if first else "no")
        elif first:
            yield Build((case,), implementation, "only")


def build_ahead(jobs: Sequence[Job], pool: Pool, options: Options, on_begin: Callable[[str], None]) -> None:
    """Build the code that `jobs` need on the device of `pool`, except what an earlier run built.

    A failed build raises nothing: the row of that implementation reports it. `on_begin` is called with a message.
    """
    folder = _markers()
    if folder is None:
        return
    folders = {each.adapter.folder for job in jobs for each in job.implementations}
    sources = {name: _sources(ROOT / name) for name in folders}
    pending: queue.SimpleQueue[tuple[Build, Path]] = queue.SimpleQueue()
    largest, count = 0, 0
    for build in builds(jobs, pool, options):
        marker = folder / build.digest(pool.device.name, sources[build.implementation.adapter.folder])
        if not marker.exists():
            pending.put((build, marker))
            largest, count = max(largest, build.bytes), count + 1
    room = _Room(hardware.memory_bytes(pool.device.type, pool.device.index))
    processes = min(count, host.cores(), room.processes(largest))
    if count < MIN_BUILDS or processes < 2:
        return
    on_begin(f"building {count} kernels ahead, {processes} at a time")
    _build_all(pending, pool, room, processes, options)


class _Room:
    """The memory of a device that several builds share. A size of None is unknown, and limits nothing."""

    def __init__(self, free_bytes: int | None) -> None:
        self._free, self._changed = sys.maxsize if free_bytes is None else free_bytes, threading.Condition()

    def processes(self, largest_bytes: int) -> int:
        """How many processes fit beside the operands of the largest build."""
        return max(0, self._free - largest_bytes) // PROCESS_BYTES

    def reserve(self, processes: int) -> None:
        """Take the memory of processes that hold it until the end."""
        self._free -= processes * PROCESS_BYTES

    @contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Wait until `count` bytes are free, and hold them."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= count)
            self._free -= count
        try:
            yield
        finally:
            with self._changed:
                self._free += count
                self._changed.notify_all()


def _build_all(
    pending: queue.SimpleQueue[tuple[Build, Path]], pool: Pool, room: _Room, processes: int, options: Options
) -> None:
    workers: list[Worker] = []
    threads: list[threading.Thread] = []
    try:
        with suppress(WorkerDiedError):
            for _ in range(processes):
                workers.append(pool.start())
        room.reserve(len(workers))
        for worker in workers:
            threads.append(
                threading.Thread(target=_build_from_queue, args=(worker, pending, room, options), daemon=True)
            )
            threads[-1].start()
        for thread in threads:
            while thread.is_alive():
                thread.join(WAIT_S)
    finally:
        for worker in workers:
            worker.close(SHORT_KILL_S)
        for thread in threads:
            thread.join()


def _build_from_queue(
    worker: Worker, pending: queue.SimpleQueue[tuple[Build, Path]], room: _Room, options: Options
) -> None:
    """Let one worker take builds from the queue until the queue is empty or the worker dies."""
    with suppress(WorkerDiedError, OSError, ValueError, queue.Empty):
        while True:
            build, marker = pending.get_nowait()
            try:
                with room.holding(build.bytes):
                    _build(worker, build, options)
            finally:
                marker.touch()


def _build(worker: Worker, build: Build, options: Options) -> None:
    for case in build.cases:
        request = BuildRequest(case, build.implementation.reference, options.seed, build.telling)
        reply = worker.ask(request, options.timeout_s)
        if not isinstance(reply, BuildReply) or reply.covered:
            return


def _markers() -> Path | None:
    """The folder of the markers, beside the compilers' caches; None if no private cache folder can be had."""
    from cuda_ref.build import cache

    try:
        return Path(cache.private("ahead"))
    except cache.BuildError:
        return None


def _sources(folder: Path) -> str:
    """A hash of the names and contents of all files in a folder of kernels."""
    everything = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            everything.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return everything.hexdigest()
