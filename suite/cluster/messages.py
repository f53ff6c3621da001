"""The messages between a run and the processes that take its cases: JSON objects that name their dataclass."""

from __future__ import annotations

import json
from dataclasses import dataclass

from suite.custom.about import About
from suite.hardware.device import Device
from suite.implementations.identity import Reference
from suite.problem.case import Case
from suite.problem.source import Source
from suite.processes.codec import from_json, to_json
from suite.results.row import Row
from suite.runner.options import Options

Group = tuple[str, str, str]
"""Operation, dtype and precision: tasks that share a process's results of the telling cases."""


@dataclass(frozen=True)
class Own:
    """A user's operation, as a worker of the run has described it."""

    source: Source
    about: About


@dataclass(frozen=True)
class Setup:
    """The settings that all tasks of a run share. The device of `options` names the kind and model of every process."""

    options: Options
    own: Own | None = None
    run: str = ""
    """Name of a run in a cluster. Two runs do not share a process."""


@dataclass(frozen=True)
class Task:
    """One case on one device: its rows stay together, because ratios need times of one run."""

    number: int
    """Position of the case in the plan."""
    case: Case
    largest: Case
    """The largest case of the operation in the plan, which `--sustained` asks for."""
    implementations: tuple[Reference, ...]
    finished: tuple[Row, ...] = ()
    """Rows of this case from an interrupted run, or from another device."""
    again: bool = False
    """Only time the rows, which another device has checked and timed."""

    @property
    def group(self) -> Group:
        return self.case.operation, self.case.dtype, self.case.precision


@dataclass(frozen=True)
class Doing:
    """The next step of a task. `position` of its rows are finished."""

    number: int
    position: int
    doing: str


@dataclass(frozen=True)
class Stored:
    """Rows of a task that are new or have changed."""

    number: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Finished:
    """All rows of a task, in the order of its implementations."""

    number: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Lost:
    """A task whose process ended without its rows."""

    number: int
    how: str


@dataclass(frozen=True)
class WorkerDescription:
    """A worker of a cluster and its device, as the worker describes them."""

    name: str
    """Name of the worker, which it keeps when it is restarted."""
    host: str
    gpu: str
    """UUID of the GPU; empty on a CPU."""
    device: Device
    memory_bytes: int | None
    """Memory of the device: for a CPU, this worker's share."""
    code: str
    """Digest of the code that it runs."""
    versions: str
    """Versions of Python and of the packages that affect a row."""

    @property
    def where(self) -> str:
        return " ".join(filter(None, (self.host, self.gpu)))


Message = Setup | Task | Doing | Stored | Finished | Lost | WorkerDescription


def encode(message: Message) -> str:
    """One line of JSON, without its end."""
    return json.dumps(to_json(message))


def decode(text: str | bytes) -> Message:
    """The inverse of `encode`. Raises `ProtocolError`, or `ValueError` for a text that is no JSON."""
    message: Message = from_json(Message, json.loads(text))
    return message
