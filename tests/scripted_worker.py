"""A worker that answers by a function, for tests of the runner: no process, no framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, NoReturn

import pytest

from suite.hardware.device import Device
from suite.problem.operation import Operation
from suite.processes.child import WorkerDiedError
from suite.results.row import Key, Row
from suite.runner import compare as comparison
from suite.runner import compile_times
from suite.runner.observer import Observer, Step
from suite.runner.options import Options
from suite.runner.plan import plan
from suite.runner.selection import Selection
from suite.worker.protocol import (
    CheckReply,
    Failed,
    PeaksReply,
    PeaksRequest,
    ProbeReply,
    ProbeRequest,
    Reply,
    Request,
    SustainReply,
    SustainRequest,
    TimeReply,
    TimeRequest,
    TimingColumns,
    TimingFailed,
)

CPU = Device("cpu", name="CPU")
H200 = Device("cuda", 0, "NVIDIA H200", (9, 0))
AGREES: dict[str, Any] = {"status": "ok", "error_ratio": 0.5, "first_call_s": 0.1}
Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""From a request, with `do`, `device` and `fresh` (no other implementation has run in this worker), to a reply."""


def time_of(us: float, **more: Any) -> dict[str, Any]:
    """The timing of one implementation."""
    columns = {
        "device_us": us,
        "device_us_low": us,
        "device_us_high": us,
        "latency_us": us + 5,
        "recorder": "cupti",
        "cache": "cold",
        "reason": "",
        "remarks": "",
    }
    return {**columns, **more}


def as_dict(request: Request) -> dict[str, Any]:
    """The fields of a request that answers read."""
    done = {TimeRequest: "time", SustainRequest: "sustain", ProbeRequest: "probe", PeaksRequest: "peaks"}
    return {**asdict(request), "do": done.get(type(request), "check")}


def as_reply(request: Request, answer: dict[str, Any]) -> Reply:
    """The reply that an answer stands for."""
    if "timings" in answer:
        missing = {"samples": 30, "stopped_by": "interval", "recorder": "", "cache": "", "reason": "", "remarks": ""}
        return TimeReply({name: TimingColumns(**{**missing, **each}) for name, each in answer["timings"].items()})
    if isinstance(request, SustainRequest) and "columns" in answer:
        return SustainReply(answer["columns"])
    if isinstance(request, PeaksRequest) and "contents" in answer:
        return PeaksReply(json.dumps(answer["contents"]))
    if answer["status"] == "error":
        reason, failed = answer["reason"], answer.get("failed")
        return TimingFailed("error", reason, failed) if isinstance(request, TimeRequest) else Failed(reason, failed)
    if isinstance(request, ProbeRequest):
        return ProbeReply(**{"reason": "", "checked": "", **answer})
    return CheckReply(**{"reason": "", **answer})


class ScriptedPool:
    """Stands for `Pool`; `answer` is set on a subclass."""

    answer: Answer
    network = ""

    def __init__(
        self, device: Device, environment: Any = None, memory_bytes: int | None = None, *, times: bool = True
    ) -> None:
        self.device = device
        self.served: set[str] = set()

    def __enter__(self) -> ScriptedPool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, request: Request, *, timeout_s: float) -> Reply:
        plain = as_dict(request)
        self.served.update(plain.get("implementations") or [plain.get("implementation", "")])
        answer = type(self).answer({**plain, "device": self.device.type, "fresh": len(self.served) == 1})
        return as_reply(request, answer)

    def has_run_others(self, name: str) -> bool:
        return bool(self.served - {name})

    def discard(self) -> None:
        self.served = set()

    def renew(self) -> None:
        self.discard()

    def start(self) -> NoReturn:
        """Nothing is built ahead."""
        raise WorkerDiedError("no process", None)


class Recorded(Observer):
    """Records what an observer is called with."""

    def __init__(self) -> None:
        self.stored: list[list[tuple[str, float | None]]] = []
        self.steps: list[str] = []
        self.cases = 0

    def step(self, step: Step) -> None:
        assert step.done <= step.total
        self.steps.append(step.doing)

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        self.stored.append([(row.implementation, row.device_us) for row in rows])

    def case_finished(self, operation: Operation, rows: Sequence[Row]) -> None:
        self.cases += 1


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Row]]:
    """compare() of vector_add on 2^28 float32 elements, or `shape`, with workers that answer by `answer`."""

    def run(
        answer: Answer,
        *,
        shape: str = "N=268435456",
        shapes: tuple[str, ...] = (),
        names: tuple[str, ...] = ("torch",),
        finished: Mapping[Key, Row] = MappingProxyType({}),
        observer: Observer | None = None,
        **options: Any,
    ) -> list[Row]:
        pool = type("Pool", (ScriptedPool,), {"answer": staticmethod(answer)})
        for module in (comparison, compile_times):
            monkeypatch.setattr(module, "Pool", pool)
        monkeypatch.setattr("suite.frameworks.base.torch_is_cpu_build", lambda: False)
        monkeypatch.setattr("suite.frameworks.jax.Jax.missing", lambda self, device: None)
        selection = Selection(("vector_add",), implementations=names, dtypes=("float32",), shapes=shapes or (shape,))
        return comparison.compare(plan(selection, H200), Options(**{"device": H200, **options}), observer, finished)

    return run
