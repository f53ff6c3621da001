"""The parent's side of a process that takes cases for one device of this host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from suite.cluster.messages import Group, Message, Setup, Task, decode, encode
from suite.frameworks import _caches
from suite.processes import tree
from suite.processes.child import KILL_S, Child, spawn


class DeviceProcess(Child):
    """A process with this `environment`, which sees one device. Raises `WorkerDiedError` if it cannot be started."""

    def __init__(self, setup: Setup, environment: Mapping[str, str]) -> None:
        self.task: Task | None = None
        """The task that it runs."""
        self.groups: set[Group] = set()
        """The groups of the tasks that it has run."""
        tasks, self._tasks = os.pipe()
        self._events, events = os.pipe()
        self._partial = b""
        self._started: set[int] = set()
        try:
            start = spawn("suite.cluster.device_main", setup.options.device, environment)
            super().__init__(start, {"--tasks": tasks, "--events": events})
        except BaseException:
            os.close(self._tasks)
            os.close(self._events)
            raise
        self._send(setup)

    def _send(self, message: Setup | Task) -> None:
        data = encode(message).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it is dead: reading its pipe tells how it ended
            while data:
                data = data[os.write(self._tasks, data) :]

    def begin(self, task: Task) -> None:
        """Let it run `task`."""
        self.task = task
        self.groups.add(task.group)
        self._send(task)

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that `messages` reads."""
        return self._events, self._output

    def messages(self, ready: set[int]) -> list[Message]:
        """The messages that have come, if one of `descriptors` is `ready`. Raises `WorkerDiedError` after its end."""
        if self._output in ready:
            self._read_output()
        if self._events not in ready:
            return []
        if not (data := os.read(self._events, 1 << 20)):
            raise self.death_error()
        *whole, self._partial = (self._partial + data).split(b"\n")
        return [decode(line) for line in whole]

    def kill(self, wait_s: float = KILL_S) -> None:
        self._started.update(tree.descendants(self.pid))
        super().kill(wait_s)

    def close(self, wait_s: float = KILL_S) -> None:
        """End it and all that it has started, and remove their temporary folders."""
        super().close(wait_s)
        for each in self._started:
            _caches.remove_temporary(each)
        os.close(self._tasks)
        os.close(self._events)
