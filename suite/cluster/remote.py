"""compare() on the devices of a Dask cluster of any number of hosts. A Dask task is one case on one device."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING

from suite.cluster import hosts
from suite.cluster.ledger import Ledger
from suite.cluster.local import MAX_DEATHS
from suite.cluster.messages import Finished, Group, Lost, Setup, Task, WorkerDescription, decode, encode
from suite.core.errors import WorkerError
from suite.core.text import one_line
from suite.results.resume import code_digest
from suite.results.row import Key, Row
from suite.runner.observer import Observer
from suite.runner.options import Options
from suite.runner.plan import Job

if TYPE_CHECKING:
    from distributed import Client, Future

LOOK_S = 1.0
"""Period of looking for workers that have come or gone."""
RESULT_S = 10.0
"""Time to fetch rows. They are computed again if their worker is lost in between (distributed#7870)."""
ALONE_S = 180.0
"""Time without a worker after which a run ends."""
GO_ON = "to continue, repeat the command with --resume"


def compare(
    jobs: Sequence[Job],
    options: Options,
    observer: Observer | None = None,
    finished: Mapping[Key, Row] = MappingProxyType({}),
    *,
    address: str,
    devices: int = 1,
) -> list[Row]:
    """Check and time every implementation of `jobs` on the devices of the run's model in the cluster at `address`.

    `devices` is their number when the run begins. The rows are in the order of the plan. Raises `WorkerError` if the
    cluster is lost.
    """
    ledger = Ledger(jobs, options, observer or Observer(), finished, devices)
    with hosts.connected(address) as client:
        Submission(client, options, ledger).run()
    return ledger.rows


@dataclass
class WorkerState:
    """A worker of the run and its task. A restarted worker has a new address and a new state."""

    description: WorkerDescription
    groups: set[Group]
    """The groups of the tasks that it has run."""
    task: Task | None = None
    future: Future | None = None


class Submission:
    """The tasks of a run in a cluster. Each worker has one at a time: Dask counts a lost worker against all its tasks.

    Dask's own queue does not hold back tasks that are bound to a resource or a worker, whatever `worker-saturation` is.
    """

    def __init__(self, client: Client, options: Options, ledger: Ledger) -> None:
        self._client = client
        self._device = options.device
        self._ledger = ledger
        self._name = f"case-{uuid.uuid4().hex[:12]}"
        self._setup = encode(Setup(options, run=self._name))
        self._code = code_digest()
        self._submitted = 0
        self._workers: dict[str, WorkerState] = {}
        self._described: set[str] = set()
        """Workers whose device is known."""
        self._refused: set[str] = set()
        """Reasons why workers take no cases."""
        self._busy: set[str] = set()
        """Workers with tasks of other runs."""
        self._gone: set[str] = set()
        """Workers that have a task and were missing at the last look."""
        self._deaths = Counter[str]()
        """Tasks that each worker, by its name, has lost one after the other."""
        self._how = ""
        """The reason of the last loss."""
        self._done: SimpleQueue[Future] = SimpleQueue()
        self._looked = -LOOK_S
        self._seen = time.monotonic()

    def run(self) -> None:
        """Run all tasks of the ledger."""
        try:
            while not self._ledger.is_complete(self._left):
                self._look()
                self._give()
                with contextlib.suppress(Empty):
                    self._hear(self._done.get(timeout=LOOK_S))
        finally:
            self._stop()

    @property
    def _left(self) -> set[str]:
        """The names of the devices that may still get tasks."""
        names = {worker.description.name for worker in self._workers.values()}
        return {name for name in names if self._deaths[name] < MAX_DEATHS}

    def _look(self) -> None:
        """Find the workers that have come or gone, once in LOOK_S."""
        if time.monotonic() < self._looked + LOOK_S:
            return
        self._looked = time.monotonic()
        try:
            processing = self._client.processing()
            new = [each for each in processing if each not in self._described]
            found = hosts.describe_workers(self._client, self._code, new) if new else {}
        except OSError as error:
            raise WorkerError(f"the scheduler is lost ({one_line(str(error))}): {GO_ON}") from error
        for address in [each for each in self._workers if each not in processing]:
            self._leave(address)
        self._gone &= self._workers.keys()
        self._described.update(found)
        for address, description in found.items():
            if not isinstance(description, WorkerDescription):
                self._refused.add(description)
            elif description.device.name == self._device.name:
                self._workers[address] = WorkerState(description, set())
        self._busy = {each for each, keys in processing.items() if any(self._name not in str(key) for key in keys)}
        self._check_alone()

    def _leave(self, address: str) -> None:
        """Forget a worker that has gone. Its task never began, unless Dask reports it lost within LOOK_S."""
        worker = self._workers[address]
        if worker.task is not None and address not in self._gone:
            self._gone.add(address)
            return
        if worker.task is not None:
            self._ledger.give_back(worker.task.number)
        del self._workers[address]

    def _check_alone(self) -> None:
        """Raise `WorkerError` if no device is left that may have a task."""
        if self._left:
            self._seen = time.monotonic()
        elif self._workers:
            raise WorkerError(f"each device has lost its last {MAX_DEATHS} cases ({self._how}): {GO_ON}")
        elif time.monotonic() > self._seen + ALONE_S:
            why = "; ".join(["", *sorted(self._refused)])
            raise WorkerError(f"no worker with {self._device.name} for {ALONE_S:g} s{why}: {GO_ON}")

    def _give(self) -> None:
        """Give each idle worker a task."""
        from suite.cluster import device_plugin

        for address, worker in self._workers.items():
            if worker.task is not None or address in self._busy or self._deaths[worker.description.name] >= MAX_DEATHS:
                continue
            if (task := self._ledger.take(worker.groups, worker.description.name)) is None:
                continue
            self._submitted += 1
            worker.task = task
            worker.groups.add(task.group)
            worker.future = self._client.submit(
                device_plugin.run,
                self._setup,
                encode(task),
                key=f"{self._name}-{self._submitted}",
                workers=[address],
                resources={self._device.name: 1},
                pure=False,
            )
            worker.future.add_done_callback(self._done.put)
            self._ledger.step(task.number, 0, f"running on {worker.description.where}")

    def _hear(self, future: Future) -> None:
        """Take the rows of a finished task. Dask then forgets it, and does not run it again if its worker is lost."""
        address = next((address for address, worker in self._workers.items() if worker.future is future), None)
        if address is None:
            return
        worker = self._workers[address]
        task = worker.task
        assert task is not None
        if future.status != "finished":
            return self._lose(address, _how(future))
        try:
            answer = decode(future.result(timeout=RESULT_S))
        except TimeoutError:
            future.add_done_callback(self._done.put)
            return
        except Exception as error:
            return self._lose(address, one_line(repr(error)))
        if isinstance(answer, Lost):
            return self._lose(address, answer.how)
        assert isinstance(answer, Finished)
        self._deaths[worker.description.name] = 0
        number, worker.task, worker.future = task.number, None, None
        self._ledger.store(number, [row for row in answer.rows if row not in task.finished])
        self._ledger.finish(number, answer.rows)

    def _lose(self, address: str, how: str) -> None:
        worker = self._workers[address]
        assert worker.task is not None
        number, worker.task, worker.future = worker.task.number, None, None
        self._deaths[worker.description.name] += 1
        self._how = how
        self._ledger.lose(number, worker.description.where, how)

    def _stop(self) -> None:
        """End the processes of this run in the cluster, also those in the middle of a case."""
        from suite.cluster import device_plugin

        with contextlib.suppress(Exception):
            self._client.cancel([worker.future for worker in self._workers.values() if worker.future is not None])
        with contextlib.suppress(Exception):
            self._client.run(device_plugin.stop, self._name, workers=list(self._workers), on_error="ignore")


def _how(future: Future) -> str:
    """The reason why a task has no result."""
    from distributed import KilledWorker

    error = future.exception(timeout=RESULT_S) if future.status == "error" else None
    return "the Dask worker was killed" if isinstance(error, KilledWorker) else one_line(repr(error or future.status))
