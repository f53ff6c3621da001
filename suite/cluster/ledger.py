"""Keeps account of the tasks of a run: which are left, their rows, and how often each has been lost."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from suite.cluster.messages import Group, Task
from suite.cluster.spread import Spread
from suite.core.text import one_line
from suite.results.row import Key, Row, Status
from suite.runner.device_run import DeviceRun
from suite.runner.observer import Observer, Step
from suite.runner.options import Options
from suite.runner.plan import Job
from suite.runner.sustain import largest
from suite.worker.pool import Pool

MAX_RUNS = 3
"""A case whose process is lost runs again, twice at most."""


class Ledger:
    """The tasks of `jobs`, whose rows go to `observer` as they come. `finished` are rows of an interrupted run.

    devices: the number of devices. In a timed run on several, some cases are timed on more than one device, once all
    cases have been given out. Each device has its own name.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        options: Options,
        observer: Observer,
        finished: Mapping[Key, Row],
        devices: int = 1,
    ) -> None:
        self._observer = observer
        self._local = DeviceRun(Pool(options.device), options, {}, interpreted_too=not options.native_only)
        kept = defaultdict[tuple[str, ...], list[Row]](list)
        for row in finished.values():
            kept[row.case_key].append(row)
        self._jobs: list[Job] = []
        self.tasks: list[Task] = []
        self._waiting: dict[Group, deque[Task]] = {}
        for job in jobs:
            most = largest(job.op, job.cases)
            references = tuple(each.reference for each in job.implementations)
            for case in job.cases:
                rows = tuple(kept[(case.operation, case.label, case.dtype, case.precision)])
                self._jobs.append(job)
                self.tasks.append(Task(len(self.tasks), case, most, references, rows))
        self._kin: dict[Group, str] = {}
        """The operation of each group; empty for all operations over ranks."""
        for task, job in zip(self.tasks, self._jobs, strict=True):
            self._waiting.setdefault(task.group, deque()).append(task)
            self._kin[task.group] = "" if job.op.over_ranks else job.op.name
        self._cases = len(self.tasks)
        self._spread = Spread(self._cases, devices if options.timed else 1)
        self._again: dict[int, int] = {}
        """The number of the case that a task times on a further device, by the number of the task."""
        self._devices: dict[int, str] = {}
        """The name of the device that has or last had a task, by the number of the task."""
        self._begun: set[Group] = set()
        self._lost = Counter[int]()
        self._new: set[int] = set()
        self._rows: dict[int, Sequence[Row]] = {}
        self._done = 0
        self._total = sum(len(self._local.implementations(job)) for job in self._jobs)

    def is_complete(self, devices: Collection[str]) -> bool:
        """True if nothing is left to do for the remaining `devices`."""
        return len(self._rows) == self._cases and self._spread.is_complete(devices)

    @property
    def rows(self) -> list[Row]:
        """The rows of all finished tasks, in the order of the plan."""
        return [row for number in sorted(self._rows) for row in self._rows[number]]

    def take(self, known: set[Group], device: str) -> Task | None:
        """The next task for a device whose process has run tasks of the groups `known`; None if it has none to do.

        A process takes tasks of its own groups first, then those of other dtypes of its operations, whose modules and
        telling cases it knows, then those of an operation that no other process has begun, then those of the group with
        the most tasks left. Operations over ranks count as one: the same processes run all of them.
        """
        left = [group for group, tasks in self._waiting.items() if tasks]
        mine = [group for group in left if group in known]
        fresh = [group for group in left if group not in self._begun]
        kin, begun = ({self._kin[each] for each in groups} for groups in (known, self._begun))
        near = [group for group in fresh if self._kin[group] in kin]
        new = [group for group in fresh if self._kin[group] not in begun]
        longest = sorted(left, key=lambda group: -len(self._waiting[group]))
        for group in (*mine, *near, *new, *fresh, *longest):
            self._begun.add(group)
            task = self._waiting[group].popleft()
            self._devices[task.number] = device
            return task
        return self._take_again(device)

    def _take_again(self, device: str) -> Task | None:
        """A task that times a case on `device` after another device has run it; None if there is none."""
        if (found := self._spread.begin(device)) is None:
            return None
        case, rows = found
        task = replace(self.tasks[case], number=len(self.tasks), finished=tuple(rows), again=True)
        self.tasks.append(task)
        self._again[task.number] = case
        return task

    def give_back(self, number: int) -> None:
        """Queue a task again that has not begun."""
        if number in self._again:
            self._end_again(number, ())
        elif number not in self._rows:
            task = self.tasks[number]
            self._waiting[task.group].appendleft(task)

    def step(self, number: int, position: int, doing: str) -> None:
        """Report the next step of a task."""
        case = self.tasks[number].case
        done = min(self._done + position, self._total)
        name = f"{case.label} {case.dtype} {case.precision}"
        self._observer.step(Step(case.operation, name, doing, done, self._total))

    def store(self, number: int, rows: Sequence[Row]) -> None:
        """Pass on rows of a task that are new or have changed."""
        if number not in self._rows and number not in self._again and rows:
            self._new.add(number)
            self._observer.store(self._jobs[number].op, rows)

    def finish(self, number: int, rows: Sequence[Row]) -> None:
        """Record all rows of a task. Nothing happens if it is finished already."""
        if number in self._again:
            return self._end_again(number, rows)
        if number in self._rows:
            return
        self._rows[number] = rows
        self._done += len(rows)
        if number in self._new:
            self._observer.case_finished(self._jobs[number].op, rows)
        self._spread.finish(number, self._devices[number], rows)

    def _end_again(self, number: int, rows: Sequence[Row], lost: str = "") -> None:
        """Record the rows of a task that timed a case on a further device: none if that device was lost."""
        case = self._again[number]
        if changed := self._spread.end(case, rows, lost):
            self._observer.store(self._jobs[case].op, changed)

    def lose(self, number: int, where: str, how: str) -> None:
        """Queue a task again whose process was lost; after MAX_RUNS losses its missing rows are errors."""
        if number in self._again:
            return self._end_again(number, (), f"its process was lost on {where}: {one_line(how)}")
        if number in self._rows:
            return
        self._lost[number] += 1
        if self._lost[number] < MAX_RUNS:
            self.give_back(number)
            return
        task, job = self.tasks[number], self._jobs[number]
        reason = f"its process was lost {MAX_RUNS} times, at last on {where}: {one_line(how)}"
        there = {row.implementation: row for row in task.finished}
        rows = [
            there.get(each.name) or self._local.new_row(task.case, each) for each in self._local.implementations(job)
        ]
        lost = [row for row in rows if row.implementation not in there]
        for row in lost:
            row.status, row.reason, row.killed_from_outside = Status.ERROR, reason, True
        self.store(number, lost)
        self.finish(number, rows)
