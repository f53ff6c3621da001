"""The end of a run may come to a worker before the run's last task, and while the task's process starts."""

from __future__ import annotations

import pytest

from suite import ops

pytest.importorskip("distributed", reason="dask distributed is not installed: pip install '.[cluster]'")

from suite.cluster import device_plugin
from suite.cluster.device_plugin import DevicePlugin
from suite.cluster.messages import Lost, Setup, Task
from suite.hardware.device import Device
from suite.runner.options import Options

SETUP = Setup(Options(Device("cpu", name="CPU"), timed=False, memory_bytes=2**30), run="case-1")


def task() -> Task:
    (case, *_) = ops.get("vector_add").default_cases("cpu")
    return Task(0, case, case, ("torch",))


class Process:
    """A process that takes cases, with what happens while it starts."""

    left: list[Process]

    def __init__(self, *given: object) -> None:
        Process.left.append(self)
        Process.starting()

    @staticmethod
    def starting() -> None:
        pass

    def begin(self, task: Task) -> None:
        raise AssertionError("a task of a run that has ended begins")

    def kill(self, wait_s: float) -> None:
        pass

    def close(self, wait_s: float) -> None:
        Process.left.remove(self)


@pytest.mark.parametrize("when", ["before the task", "while the process starts"])
def test_no_process_is_left_of_a_run_that_has_ended(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = DevicePlugin({}, 1)
    monkeypatch.setattr(Process, "left", [], raising=False)
    monkeypatch.setattr(device_plugin, "DeviceProcess", Process)
    if when == "before the task":
        plugin.stop("case-1")
    else:
        monkeypatch.setattr(Process, "starting", lambda: plugin.stop("case-1"))
    assert isinstance(plugin.run(SETUP, task()), Lost)
    assert Process.left == []
