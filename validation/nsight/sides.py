"""The two sides of the comparison, each run in a process of its own: the suite's recorder, and Nsight Compute."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from suite import frameworks
from suite.hardware.device import resolve
from suite.implementations import bound_call, builtin
from suite.problem.case import Case
from suite.timing import median
from validation.nsight.profiler import EMPTY, MARKER_CYCLES
from validation.nsight.rows import Key


class Pace:
    """Issues calls at a fixed period. `late` counts the calls that missed their time."""

    def __init__(self, period_s: float) -> None:
        self.period_s, self.next, self.late = period_s, 0.0, 0

    def wait(self) -> None:
        """Sleep until the next call is due."""
        now = time.perf_counter()
        self.late += 0 < self.next < now - self.period_s / 10
        if now < self.next:
            time.sleep(self.next - now)
        self.next = max(self.next, now) + self.period_s


def child(settings: dict[str, Any]) -> None:
    """Run one side over all cases and write its entries; a failing implementation has a reason instead of numbers."""
    from suite.processes.codec import from_json
    from suite.worker.session import Session

    device = resolve("cuda:0")
    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    session = Session(device, lambda started: None)
    answers: list[dict[str, Any]] = []
    side = {"record": record, "profile": profile}[settings["side"]]
    for case in (from_json(Case, each) for each in settings["cases"]):
        begin = time.perf_counter()
        bound, entries = bind(case, settings["implementations"], session)
        answers += entries
        ready = time.perf_counter()
        late = side(case, bound, {entry["implementation"]: entry for entry in entries}, settings)
        ends = time.perf_counter()
        print(
            f"{case.operation}: ready in {ready - begin:.1f} s, called in {ends - ready:.1f} s, {late} late", flush=True
        )
        Path(settings["answers"]).write_text(json.dumps(answers), encoding="utf-8")


def key_of(case: Case, implementation: str) -> Key:
    """Return the key of a row."""
    return case.operation, case.label, case.dtype, case.precision, implementation


def bind(case: Case, names: Sequence[str], session: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Call each implementation that runs this case once. Returns them, and an entry for each requested one."""
    problem = session.hold(case, 0)
    bound, entries = [], []
    for implementation in builtin.implementations(case.operation):
        if implementation.name not in names:
            continue
        entry: dict[str, Any] = {"key": key_of(case, implementation.name), "implementation": implementation.name}
        entries.append(entry)
        try:
            obstacle = implementation.obstacle(session.device)
            if obstacle is not None:
                raise NotImplementedError(": ".join(obstacle))
            ready = bound_call.bind(implementation, problem.buffers, problem.op.arguments(case))
            implementation.adapter.wait(ready.issue())
            entry["config"] = implementation.adapter.configuration(implementation.load())
            bound.append(ready)
        except Exception as error:  # one implementation's failure is one row
            entry["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    bound.append(Empty())
    entries.append({"key": key_of(case, EMPTY), "implementation": EMPTY, "config": ""})
    return bound, entries


class Empty:
    """A fill of one element, in the form of a bound implementation."""

    def __init__(self) -> None:
        import torch

        self.implementation = SimpleNamespace(name=EMPTY, adapter=frameworks.get("torch"))
        self.element = torch.empty(1, device="cuda")

    def issue(self) -> Any:
        return self.element.fill_(0.0)


def record(case: Case, bound: Sequence[Any], entries: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """Run the suite's side: its own measurement, at the period. Returns the number of late calls."""
    import torch

    from suite.timing import Call
    from suite.timing.sampling import Measurement
    from suite.timing.target import CudaTarget

    pace = Pace(settings["period_s"])

    now = ""
    spins: dict[str, list[tuple[Any, Any]]] = {}

    def progress(name: str) -> None:
        nonlocal now
        now = name

    class Paced(CudaTarget):
        def evict(self) -> None:
            pace.wait()
            super().evict()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            torch.cuda._sleep(MARKER_CYCLES)
            end.record()
            spins.setdefault(now, []).append((begin, end))

    calls = [Call(each.implementation.name, each.issue, each.implementation.adapter.wait) for each in bound]
    if not calls:
        return 0
    budget_s = settings["rounds"] * len(calls) * settings["period_s"]
    target = Paced(torch.device("cuda", 0))
    measurement = Measurement(calls, target, "cold", settings["seed"], progress)
    for name, timing in measurement.measure(budget_s, 0.0, False).items():
        entry = entries[name]
        entry["mhz"] = median([MARKER_CYCLES / 1000 / begin.elapsed_time(end) for begin, end in spins[name]])
        if timing.device_us is None:
            entry["reason"] = timing.error or timing.recorder_reason
            continue
        others = sum(a.end - a.start for a in timing.activities if a.kind != "kernel") / 1000
        entry["names"] = [a.name for a in timing.activities if a.kind == "kernel"]
        entry |= {"median": timing.device_us - others, "other_us": others, "samples": timing.samples}
    return pace.late


def profile(case: Case, bound: Sequence[Any], entries: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """Run Nsight Compute's side: the same calls, each after a marker. Returns the number of late calls."""
    import torch

    from suite.timing.target import CudaTarget

    target, pace, order = (
        CudaTarget(torch.device("cuda", 0)),
        Pace(settings["period_s"]),
        random.Random(settings["seed"]),
    )
    for each in bound:
        for _ in range(3):
            each.implementation.adapter.wait(each.issue())
    slow: set[str] = set()
    for turn in range(settings["rounds"]):
        for each in order.sample(list(bound), len(bound)):
            name = each.implementation.name
            if name in slow and turn >= 3:
                continue
            pace.wait()
            target.evict()
            target.synchronize()
            torch.cuda.profiler.start()
            torch.cuda._sleep(MARKER_CYCLES)
            target.synchronize()
            begin = time.perf_counter()
            each.implementation.adapter.wait(each.issue())
            target.synchronize()
            if time.perf_counter() - begin > 0.5:
                slow.add(name)
            torch.cuda.profiler.stop()
            with Path(settings["plan"]).open("a", encoding="utf-8") as plan:
                plan.write(json.dumps(entries[name]["key"]) + "\n")
    return pace.late
