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
from suite.cluster.device_process import DeviceProcess
from suite.cluster.messages import Finished, Lost, Setup, Task, WorkerDescription, decode, encode
from suite.hardware.device import resolve
from suite.hardware.environment import PACKAGES, environment_record, package_version
from suite.processes.child import KILL_S, SHORT_KILL_S, TICK_S
from suite.results.resume import code_digest
from suite.worker.pool import WorkerDiedError
from suite.worker.process import MEMORY_SHARE


class DevicePlugin(WorkerPlugin):  # type: ignore[misc]
    """Runs tasks on the device of a worker.

    environment: the environment of its processes. devices: the number of devices of the host. The plugin is an argument
    of the worker, so a worker that its nanny restarts has the same environment.
    """

    name = "kernel-suite"

    def __init__(self, environment: Mapping[str, str], devices: int) -> None:
        self._environment = dict(environment)
        self._devices = devices
        self._worker = ""
        self._setup: Setup | None = None
        self._process: DeviceProcess | None = None
        self._running = False
        self._stopped: set[str] = set()
        """Runs that have ended. A task of such a run may still arrive: Dask sends tasks and the message of the end over
        different connections."""

    def setup(self, worker: Worker) -> None:
        """Called by Dask when the worker starts."""
        os.environ.update(self._environment)
        self._worker = str(worker.name)

    def teardown(self, worker: Worker) -> None:
        """Called by Dask when the worker ends."""
        self.stop()

    def describe(self) -> WorkerDescription:
        """Describe this worker and its device."""
        device = resolve(None)
        gpu = hardware.uuid() if device.type == "cuda" else ""
        versions = [f"python {platform.python_version()}"]
        versions += [f"{name} {found}" for name in PACKAGES if (found := package_version(name)) is not None]
        memory = hardware.memory_bytes(device.type)
        share = memory // self._devices if memory is not None and device.type == "cpu" else memory
        return WorkerDescription(self._worker, platform.node(), gpu, device, share, code_digest(), ", ".join(versions))

    def run(self, setup: Setup, task: Task) -> Finished | Lost:
        """Run a task in a process that later tasks with the same `setup` use too."""
        self._running = True
        try:
            process = self._process_with(setup)
            if setup.run in self._stopped:  # `stop` sees the process, or this sees that it was called
                self._close(SHORT_KILL_S)
                return Lost(task.number, "its run has ended")
            process.begin(task)
            while True:
                ready = set(select.select(process.descriptors, [], [], TICK_S)[0])
                for message in process.messages(ready):
                    if isinstance(message, Finished):
                        return message
        except (WorkerDiedError, ValueError) as error:
            self._close(KILL_S)
            return Lost(task.number, str(error))
        finally:
            self._running = False

    def _process_with(self, setup: Setup) -> DeviceProcess:
        if self._process is None or setup != self._setup:
            self._close(KILL_S)
            free = setup.options.memory_bytes or hardware.free_host_bytes()
            share = None if free is None else int(MEMORY_SHARE * free / self._devices)
            shared = replace(setup, options=replace(setup.options, memory_bytes=share))
            self._setup, self._process = setup, DeviceProcess(shared, self._environment)
        return self._process

    def stop(self, run: str | None = None) -> None:
        """End the process if it belongs to this run; None: any run. Its task is lost."""
        if run is not None:
            self._stopped.add(run)
        if self._setup is None or run not in (None, self._setup.run):
            return
        if self._running and self._process is not None:
            self._process.kill(0.0)  # `run` closes it
        else:
            self._close(SHORT_KILL_S)

    def _close(self, wait_s: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close(wait_s)


def _plugin(worker: Worker) -> DevicePlugin:
    plugin: DevicePlugin = worker.plugins[DevicePlugin.name]
    return plugin


def run(setup: str, task: str) -> str:
    """Run a task and return `Finished` with its rows, or `Lost`. This is the function of each Dask task."""
    its_setup, its_task = decode(setup), decode(task)
    assert isinstance(its_setup, Setup)
    assert isinstance(its_task, Task)
    return encode(_plugin(get_worker()).run(its_setup, its_task))


def describe(dask_worker: Worker) -> str:
    """Describe the worker: a `WorkerDescription`. Raises KeyError for a worker that `cluster start` has not started."""
    return encode(_plugin(dask_worker).describe())


def environment(commit: str, dask_worker: Worker) -> str:
    """The environment record of a run on the worker's device."""
    return json.dumps(environment_record(_plugin(dask_worker).describe().device.type, 0, commit))


def stop(run: str, dask_worker: Worker) -> None:
    """End the processes of a run that has ended or is interrupted."""
    _plugin(dask_worker).stop(run)


def allowed_failures(dask_scheduler: Scheduler) -> int:
    """The number of lost workers after which the scheduler itself runs a task again."""
    return int(dask_scheduler.allowed_failures)
