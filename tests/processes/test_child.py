"""Waiting for the message of a process: how long, and what does not count."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest

from suite.processes import limits
from suite.processes.child import Child, WorkerTimeoutError

LIMIT_S = 30.0


class Sleeper(Child):
    """A process that sends nothing. This process writes its message, after so many ticks."""

    def __init__(self) -> None:
        command = ["sleep", "600"]
        super().__init__(lambda _, output: subprocess.Popen(command, stdout=output, start_new_session=True), {})
        self.messages, self._writes = os.pipe()
        self.ticks, self.writes_after = 0, -1

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == self.writes_after:
            self.write()

    def write(self) -> None:
        os.write(self._writes, b"message")

    def close(self, wait_s: float = 10.0) -> None:
        super().close(wait_s)
        os.close(self.messages)
        os.close(self._writes)


@pytest.fixture
def child() -> Iterator[Sleeper]:
    child = Sleeper()
    yield child
    child.close()


@pytest.fixture
def stopped_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes pass between two readings of the clock."""
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=partial(next, itertools.count(0.0, 600.0))))


def test_a_message_that_waits_at_the_deadline_is_taken(child: Sleeper) -> None:
    """This process was stopped for longer than the other one needed."""
    child.write()
    child.wait_for(child.messages, LIMIT_S, child.clock() - LIMIT_S)
    assert child.alive


def test_the_time_for_which_this_process_was_stopped_does_not_count(stopped_often: None, child: Sleeper) -> None:
    child.writes_after = 4
    child.wait_for(child.messages, LIMIT_S, child.clock() + LIMIT_S)
    assert child.ticks == 4
    assert child.alive


def test_a_process_that_sends_nothing_is_ended_also_if_this_one_is_stopped_often(
    stopped_often: None, child: Sleeper
) -> None:
    with pytest.raises(WorkerTimeoutError, match=r"did not end within 3 s and was stopped$"):
        child.wait_for(child.messages, 3.0, child.clock() + 3.0)
    assert 1 <= child.ticks <= 3
    assert not child.alive
