"""The part of a run inside a Dask worker: its device, and the process that runs cases on this device.

The functions are called by name from the submitting process. They take and return JSON texts of `messages.py`.
"""

from __future__ import annotations

import json
import os
import platform
import select
from collections.abc import Mapping
from dataclasses import replace

from distributed import Scheduler, Worker, WorkerPlugin, get_worker

from suite import hardware
from suite.cluster.lane import Lane
from suite.cluster.messages import Finished, Lost, Place, Setup, Task, decode, encode
from suite.hardware.device import resolve
from suite.hardware.environment import PACKAGES, environment_record, package_version
from suite.processes.child import KILL_S, SHORT_KILL_S, TICK_S
from suite.results.resume import code_digest
from suite.worker.pool import WorkerDiedError
from suite.worker.process import MEMORY_SHARE


class Station(WorkerPlugin):  # type: ignore[misc]
    """The device of a worker. `environment` is that of its processes, `devices` the number of devices of the host.

    It is an argument of the worker, so that a worker that its nanny restarts has the same environment.
    """

    name = "kernel-suite"

    def __init__(self, environment: Mapping[str, str], devices: int) -> None:
        self._environment = dict(environment)
        self._devices = devices
        self._worker = ""
        self._setup: Setup | None = None
        self._lane: Lane | None = None
        self._running = False

    def setup(self, worker: Worker) -> None:
        """Called by Dask when the worker starts."""
        os.environ.update(self._environment)
        self._worker = str(worker.name)

    def teardown(self, worker: Worker) -> None:
        """Called by Dask when the worker ends."""
        self.stop()

    def place(self) -> Place:
        """Describe the device."""
        device = resolve(None)
        gpu = hardware.uuid() if device.type == "cuda" else ""
        versions = [f"python {platform.python_version()}"]
        versions += [f"{name} {found}" for name in PACKAGES if (found := package_version(name)) is not None]
        memory = hardware.memory_bytes(device.type)
        share = memory // self._devices if memory is not None and device.type == "cpu" else memory
        return Place(self._worker, platform.node(), gpu, device, share, code_digest(), ", ".join(versions))

    def run(self, setup: Setup, task: Task) -> Finished | Lost:
        """Run a task in a process that later tasks with the same `setup` use too."""
        self._running = True
        try:
            lane = self._lane_with(setup)
            lane.begin(task)
            while True:
                ready = set(select.select(lane.descriptors, [], [], TICK_S)[0])
                for message in lane.messages(ready):
                    if isinstance(message, Finished):
                        return message
        except (WorkerDiedError, ValueError) as error:
            self._close(KILL_S)
            return Lost(task.number, str(error))
        finally:
            self._running = False

    def _lane_with(self, setup: Setup) -> Lane:
        if self._lane is None or setup != self._setup:
            self._close(KILL_S)
            free = setup.options.memory_bytes or hardware.free_host_bytes()
            share = None if free is None else int(MEMORY_SHARE * free / self._devices)
            shared = replace(setup, options=replace(setup.options, memory_bytes=share))
            self._setup, self._lane = setup, Lane(shared, self._environment)
        return self._lane

    def stop(self, run: str | None = None) -> None:
        """End the process if it belongs to this run; None: any run. Its task is lost."""
        if self._setup is None or run not in (None, self._setup.run):
            return
        if self._running and self._lane is not None:
            self._lane.kill(0.0)  # `run` closes it
        else:
            self._close(SHORT_KILL_S)

    def _close(self, wait_s: float) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close(wait_s)


def _station(worker: Worker) -> Station:
    station: Station = worker.plugins[Station.name]
    return station


def run(setup: str, task: str) -> str:
    """Run a task and return `Finished` with its rows, or `Lost`. This is the function of each Dask task."""
    its_setup, its_task = decode(setup), decode(task)
    assert isinstance(its_setup, Setup)
    assert isinstance(its_task, Task)
    return encode(_station(get_worker()).run(its_setup, its_task))


def describe(dask_worker: Worker) -> str:
    """The worker's `Place`. Raises KeyError for a worker that `cluster start` has not started."""
    return encode(_station(dask_worker).place())


def environment(commit: str, dask_worker: Worker) -> str:
    """The environment record of a run on the worker's device."""
    return json.dumps(environment_record(_station(dask_worker).place().device.type, 0, commit))


def stop(run: str, dask_worker: Worker) -> None:
    """End the processes of a run that has ended or is interrupted."""
    _station(dask_worker).stop(run)


def allowed_failures(dask_scheduler: Scheduler) -> int:
    """The number of lost workers after which the scheduler itself runs a task again."""
    return int(dask_scheduler.allowed_failures)
