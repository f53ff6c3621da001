"""The worker process: it alone imports frameworks, runs kernels and judges them.

`isolate.py` starts it as `python -m suite.worker.server` and talks to it in JSON, one document a line, over two pipes
of its own, so that a kernel that prints disturbs nothing. Requests:

    {"do": "check", "case": ..., "implementation": ..., "seed": ...}
    {"do": "time", "case": ..., "implementations": [...], "seed": ..., "cache": ...}
    {"do": "tune", "case": ..., "implementation": ..., "seed": ...}

Those from outside the tree are described in "visas", by name.

Answers are {"event": "ready"} once, {"event": "started", ...} when something begins that may hang or crash, and
{"event": "done", ...}: see `protocol.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

from suite import frameworks
from suite.core.errors import SuiteError
from suite.core.text import one_line
from suite.hardware.device import Device
from suite.implementations import builtin, explain
from suite.implementations.builtin import Implementation
from suite.implementations.external import module as guest
from suite.problem.case import Case
from suite.worker.protocol import FIRST_CALL, JUDGING, PREPARING, TIMED_CALL

if TYPE_CHECKING:
    from suite.checking.checked_call import Problem

SIGN_OF_LIFE_S = 0.5
"""How often it is told that the same thing still goes on."""

ROUNDS_S = 0.3
"""Time that a case's samples may take, beyond the few that every line gets."""


@dataclass
class Bound:
    """An implementation with a case's inputs bound to it, as its framework's arrays."""

    implementation: Implementation
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    arguments: dict[str, Any]

    def issue(self) -> Any:
        return self.function(*self.inputs, **self.arguments)


class Worker:
    """Holds one case at a time: its inputs and, while they fit, its truths."""

    def __init__(self, device: Device, answer: Callable[[dict[str, Any]], None]) -> None:
        import torch

        self.device = device
        self.answer = answer
        self.torch_device = torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu")
        self.key: tuple[Case, int] | None = None
        self.problem: Problem | None = None
        self.at: str | None = None
        self.told: tuple[str | None, str, float] = (None, "", 0.0)
        self.visas: dict[str, Any] = {}
        self.found: dict[str, Implementation] = {}

    def hold(self, case: Case, seed: int) -> Problem:
        """Make `case`'s inputs the current ones."""
        from suite.checking.checked_call import Problem

        if self.problem is None or self.key != (case, seed):
            self.release()
            self.problem = Problem(case, seed, self.torch_device)
            self.key = (case, seed)
        return self.problem

    def release(self) -> None:
        import torch

        self.key = self.problem = None
        gc.collect()
        gc.freeze()  # what outlives a case: frameworks, kernels, caches; looking through them takes 0.2 s each time
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def find(self, name: str, case: Case) -> Implementation:
        self.found[name] = builtin.find(case.operation, name, self.visas)
        return self.found[name]

    def reason(self, error: BaseException) -> str:
        """Why what this worker is at failed."""
        implementation = self.found.get(self.at or "")
        if implementation is not None and implementation.path is not None:
            return guest.reason(error, implementation, self.device.type)
        return explain.reason(error, self.device.type)

    def bind(self, name: str, problem: Problem) -> Bound:
        implementation = self.find(name, problem.case)
        function = implementation.function()
        native = tuple(implementation.adapter.to_native(tensor) for tensor in problem.draws[0])
        return Bound(implementation, function, native, problem.op.arguments(problem.case))

    def check(self, case: Case, name: str, seed: int) -> dict[str, Any]:
        """Load, call and judge one implementation."""
        from suite.checking.checked_call import examine

        self.starting(name, PREPARING)
        problem = self.hold(case, seed)
        implementation = self.find(name, case)
        try:
            examination = examine(
                implementation.function,
                implementation.adapter,
                problem,
                claims_determinism=implementation.deterministic,
                announce=lambda phase: self.starting(name, phase),
            )
        except NotImplementedError as error:
            return {"status": "unsupported", "reason": one_line(error)[: explain.LONGEST] or "NotImplementedError"}
        columns = asdict(examination)
        status = "ok" if columns.pop("agrees") else "wrong"
        columns["reason"] = "; ".join(filter(None, (columns["reason"], *guest.remarks(implementation))))
        return {"status": status, **columns, "config": implementation.adapter.configuration(implementation.load())}

    def tune(self, case: Case, name: str, seed: int) -> dict[str, Any]:
        """Search the configurations of one implementation for the fastest that agrees."""
        from suite.worker.tuning_search import Search

        self.starting(name, PREPARING)
        problem, implementation = self.hold(case, seed), self.find(name, case)
        search = Search(implementation, problem, self.torch_device, seed, lambda phase: self.starting(name, phase))
        try:
            found = search.run()
        except NotImplementedError as error:
            return {"status": "unsupported", "reason": one_line(error)[: explain.LONGEST] or "NotImplementedError"}
        except SuiteError as error:
            return {"status": "error", "reason": one_line(error)}
        return {"status": "ok", "found": [asdict(each) for each in found]}

    def columns(self, result: Any) -> dict[str, Any]:
        """A timing as the columns of a row. A CPU is timed by the wall clock by definition; that needs no reason."""
        columns = asdict(result)
        del columns["activities"]
        of_recorder = columns.pop("recorder_reason")
        reasons = [columns.pop("error"), of_recorder if self.device.type == "cuda" else ""]
        flags = "; ".join(columns.pop("flags"))
        return {**columns, "reason": "; ".join(reason for reason in reasons if reason), "flags": flags}

    def starting(self, name: str | None, phase: str = TIMED_CALL) -> None:
        """Tell which implementation runs next and in which phase: if this process dies or hangs, it is the one."""
        self.at = name
        now = time.monotonic()
        if self.told[:2] != (name, phase) or now - self.told[2] > SIGN_OF_LIFE_S:
            self.told = (name, phase, now)
            self.answer({"event": "started", "implementation": name, "phase": phase})

    def time(self, case: Case, names: list[str], seed: int, cache: str, with_transfers: bool) -> dict[str, Any]:
        """Time implementations that agree, together."""
        from suite import timing

        self.starting(None, PREPARING)
        problem = self.hold(case, seed)
        calls, bounds, peaks = [], {}, {}
        for name in names:
            self.starting(name, FIRST_CALL)  # this process may be another than the one that it was checked in
            bounds[name] = bound = self.bind(name, problem)
            adapter = bound.implementation.adapter
            wait = adapter.wait
            wait(bound.issue())
            self.starting(name)
            if isinstance(bound.function, guest.Guest):
                wait(bound.issue())  # nothing is built any more: what this call changes, every call will
                bound.function = bound.function.to_be_timed()
            peaks[name] = adapter.peak_bytes(bound.function, bound.inputs, bound.arguments)
            calls.append(timing.Call(name, bound.issue, wait, vendor=bound.implementation.vendor is not None))
        timings = timing.measure(
            calls,
            device=self.torch_device,
            cache=cache,
            seed=seed,
            budget_s=ROUNDS_S,
            energy=True,
            on_progress=self.starting,
        )
        for name, bound in bounds.items():
            wrong = self.wrong_by_now(name, bound, problem)
            if wrong:
                return {"status": "wrong", "reason": wrong, "failed": name}
        columns = {name: {**self.columns(result), "peak_bytes": peaks[name]} for name, result in timings.items()}
        if with_transfers:
            self.starting(None, PREPARING)
            shape = problem.op.output_shape(case)
            shared = timing.transfers(problem.draws[0], shape, problem.op.output_dtype(case), self.torch_device)
            for values in columns.values():
                values.update(shared)
        return {"timings": columns}

    def wrong_by_now(self, name: str, bound: Bound, problem: Problem) -> str:
        """What is wrong with one more call after all that were timed; empty if nothing is."""
        from suite.checking.checked_call import RefusedError, still_right

        self.starting(name)
        result = bound.issue()
        bound.implementation.adapter.wait(result)
        self.starting(None, JUDGING)
        try:
            return still_right(result, bound.implementation.adapter, problem).reason
        except RefusedError as refused:
            return str(refused)


def serve(device: Device, requests: TextIO, answers: TextIO) -> None:
    def answer(document: dict[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    for name in frameworks.names():
        frameworks.get(name).prepare(device)
    with contextlib.suppress(Exception):  # the first request meets it again, and tells
        import torch  # noqa: F401 (seconds, which are no implementation's)
    answer({"event": "ready"})
    worker: Worker | None = None
    for line in requests:
        request = json.loads(line)
        try:
            worker = worker or Worker(device, answer)
            worker.visas, worker.found = request.get("visas", {}), {}
            case = Case.from_json(request["case"])
            if request["do"] == "check":
                reply = worker.check(case, request["implementation"], request["seed"])
            elif request["do"] == "tune":
                reply = worker.tune(case, request["implementation"], request["seed"])
            else:
                reply = worker.time(
                    case, request["implementations"], request["seed"], request["cache"], request["transfers"]
                )
        except Exception as error:  # one implementation's failure is one row
            traceback.print_exc()
            failed = None if isinstance(error, SuiteError) or worker is None else worker.at
            reason = worker.reason(error) if worker else explain.reason(error, device.type)
            reply = {"status": "error", "reason": reason, "failed": failed}
        answer({"event": "done", **reply})


def settle(stacks: int, lifeline: int) -> None:
    """What this process owes its parent before anything else runs: not to outlive it, and to tell where it hangs."""
    faulthandler.enable(stacks, all_threads=False)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")
    # Ends this process group, with compilers and whatever else was started, when the parent is gone.
    subprocess.Popen(["/bin/sh", "-c", "read -r line; kill -KILL 0"], stdin=lifeline, stdout=subprocess.DEVNULL)
    os.close(lifeline)


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/worker/process.py.")
    parser.add_argument("--device", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--answers", type=int, required=True)
    parser.add_argument("--stacks", type=int, required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    arguments = parser.parse_args()
    for descriptor in (arguments.requests, arguments.answers, arguments.stacks):
        os.set_inheritable(descriptor, False)
    settle(arguments.stacks, arguments.lifeline)
    device = Device(**{**json.loads(arguments.device), "capability": tuple(json.loads(arguments.device)["capability"])})
    sys.stdout = sys.stderr
    os.dup2(2, 1)  # what a kernel prints goes to the log
    with (
        os.fdopen(arguments.requests, encoding="utf-8") as requests,
        os.fdopen(arguments.answers, "w", encoding="utf-8") as answers,
    ):
        serve(device, requests, answers)


if __name__ == "__main__":
    main()
