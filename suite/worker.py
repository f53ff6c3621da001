"""The worker process: it alone imports frameworks, runs kernels and judges them.

`isolate.py` starts it as `python -m suite.worker` and talks to it in JSON, one document a line, over two pipes of its
own, so that a kernel that prints disturbs nothing. Requests:

    {"do": "check", "case": ..., "implementation": ..., "seed": ...}
    {"do": "time", "case": ..., "implementations": [...], "seed": ..., "cache": ...}

Answers are {"event": "started", ...} when something begins that may hang or crash, then {"event": "done", ...}.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from suite import backends, ops
from suite.backends import Implementation
from suite.device import Device
from suite.errors import SuiteError
from suite.op import Case, Op

TRUTH_CACHE_ELEMENTS = 2**26
"""A case's truth is kept between implementations up to this many output elements (1 GiB), and computed again above."""

ROUNDS_S = 0.4
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
    """Holds one case at a time: its inputs and, while it fits, its truth."""

    def __init__(self, device: Device, answer: Callable[[dict[str, Any]], None]) -> None:
        import torch

        self.device = device
        self.answer = answer
        self.torch_device = torch.device(device.type, 0) if device.type == "cuda" else torch.device("cpu")
        self.key: tuple[Case, int] | None = None
        self.inputs: tuple[torch.Tensor, ...] = ()
        self.truths: list[Any] | None = None
        self.at: str | None = None

    def hold(self, case: Case, seed: int) -> Op:
        """Make `case`'s inputs the current ones."""
        op = ops.get(case.operation)
        if self.key != (case, seed):
            self.release()
            self.inputs = op.make_inputs(case, seed, self.torch_device)
            self.key = (case, seed)
        return op

    def release(self) -> None:
        import torch

        self.key, self.inputs, self.truths = None, (), None
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def bind(self, name: str, case: Case, op: Op) -> Bound:
        implementation = next(i for i in backends.implementations(case.operation) if i.name == name)
        function = getattr(implementation.load(), case.operation)
        native = tuple(implementation.backend.to_native(tensor) for tensor in self.inputs)
        return Bound(implementation, function, native, op.arguments(case))

    def check(self, case: Case, name: str, seed: int) -> dict[str, Any]:
        """Load, call and judge one implementation."""
        from suite import check

        op = self.hold(case, seed)
        begin = time.perf_counter()
        try:
            bound = self.bind(name, case, op)
            backend = bound.implementation.backend
            result = bound.issue()
            backend.wait(result)
        except NotImplementedError as error:
            return {"status": "unsupported", "reason": _one_line(error)}
        first_call_s = time.perf_counter() - begin
        output = backend.to_torch(result)
        verdict = check.compare(output, self.truth(op, case), shape=op.output_shape(case), dtype=case.dtype)
        return {
            "status": "ok" if verdict.agrees else "wrong",
            "reason": verdict.reason,
            "first_call_s": first_call_s,
            "error_ratio": verdict.error_ratio,
            "max_ulp": verdict.max_ulp,
            "max_rel": verdict.max_rel,
            "config": backend.configuration(bound.implementation.load()),
        }

    def columns(self, result: Any) -> dict[str, Any]:
        """A timing as the columns of a row. A CPU is timed by the wall clock by definition; that needs no reason."""
        columns = asdict(result)
        del columns["activities"]
        why_wall = columns.pop("recorder_reason")
        reasons = [columns.pop("error"), why_wall if self.device.type == "cuda" else ""]
        flags = "; ".join(columns.pop("flags"))
        return {**columns, "reason": "; ".join(reason for reason in reasons if reason), "flags": flags}

    def starting(self, name: str) -> None:
        """Tell which implementation runs next: if this process dies or hangs, it is the one."""
        self.at = name
        self.answer({"event": "started", "implementation": name})

    def truth(self, op: Op, case: Case) -> Any:
        if math.prod(op.output_shape(case)) > TRUTH_CACHE_ELEMENTS:
            return op.truth(self.inputs, case)
        if self.truths is None:
            self.truths = list(op.truth(self.inputs, case))
        return self.truths

    def time(self, case: Case, names: list[str], seed: int, cache: str, with_transfers: bool) -> dict[str, Any]:
        """Time implementations that agree, together."""
        from suite import timing

        self.at = None
        op = self.hold(case, seed)
        self.truths = None
        calls, peaks = [], {}
        for name in names:
            self.starting(name)
            bound = self.bind(name, case, op)
            backend = bound.implementation.backend
            wait = backend.wait
            wait(bound.issue())
            peaks[name] = backend.peak_bytes(bound.function, bound.inputs, bound.arguments)
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
        columns = {name: {**self.columns(result), "peak_bytes": peaks[name]} for name, result in timings.items()}
        if with_transfers:
            self.at = None
            shared = timing.transfers(self.inputs, op.output_shape(case), self.torch_device)
            for values in columns.values():
                values.update(shared)
        return {"timings": columns}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _where(error: BaseException) -> str:
    """The innermost line of the error's traceback, as `file.py:12`."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def serve(device: Device, requests: TextIO, answers: TextIO) -> None:
    def answer(document: dict[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    for name in backends.backends():
        backends.backend(name).prepare(device)
    worker: Worker | None = None
    for line in requests:
        request = json.loads(line)
        try:
            worker = worker or Worker(device, answer)
            case = Case.from_json(request["case"])
            if request["do"] == "check":
                reply = worker.check(case, request["implementation"], request["seed"])
            else:
                reply = worker.time(
                    case, request["implementations"], request["seed"], request["cache"], request["transfers"]
                )
        except Exception as error:  # one implementation's failure is one row
            traceback.print_exc()
            failed = None if isinstance(error, SuiteError) or worker is None else worker.at
            reason = f"{type(error).__name__}: {_one_line(error)}{_where(error)}"
            reply = {"status": "error", "reason": reason, "failed": failed}
        answer({"event": "done", **reply})


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/isolate.py.")
    parser.add_argument("--device", required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--answers", type=int, required=True)
    arguments = parser.parse_args()
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
