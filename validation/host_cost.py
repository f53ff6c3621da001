"""Host cost: what one warm call costs its caller, by a loop of its own beside the columns of `compare`.

    python validation/host_cost.py                                     # all operations, small sizes
    python validation/host_cost.py --op matmul --impl triton --impl torch --out results/nvidia-h200/proof

For each implementation: the time of one call in a steady loop, its ratio to torch's, `dispatch_us` and `latency_us` of
`suite.timing`, both beside the same by loops of this program, and the loop's time of the function as it is written,
without the plans of `_kept.py`. For a kept call, the parts of its time: what is looked up, allocated and launched.

Exit status: 0 if every ratio is within its limit (CUDA 1.2, Triton 1.5, elementwise operations 1.5) and every column
within 10% of its loop; 1 if not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite import frameworks, ops, timing  # noqa: E402
from suite.core.files import write_atomically  # noqa: E402
from suite.doctor.local_device import torch_device  # noqa: E402
from suite.hardware.device import resolve  # noqa: E402
from suite.implementations import builtin  # noqa: E402
from suite.results.render import number, pipe_table  # noqa: E402

SHAPES = {
    "vector_add": (1024,),
    "matrix_add": (32, 32),
    "sigmoid": (1024,),
    "sum": (32, 32),
    "softmax": (32, 1024),
    "rms_norm": (32, 1024),
    "layer_norm": (32, 1024),
    "matmul": (1024, 1024, 1024),
    "attention": (1, 4, 4, 256, 256, 64),
}
"""Sizes whose calls the device ends before the host makes the next one."""
ELEMENTWISE = ("vector_add", "matrix_add", "sigmoid")
LIMITS = {"cuda": 1.2, "triton": 1.5}
BATCH, BATCHES = 100, 30
"""Calls between two looks at the clock, fewer than a stream can queue; and how often. The median counts."""
TOLERANCE = 0.1


@dataclass(frozen=True)
class Cost:
    """Times in us of one call. None: not measured, or no torch to compare with."""

    operation: str
    implementation: str
    loop_us: float
    vs_torch: float | None
    limit: float | None
    as_written_us: float | None
    issue_us: float
    dispatch_us: float | None
    ready_us: float
    latency_us: float | None
    parts: dict[str, float]


def steady(call: Callable[[], object], wait: Callable[[], None]) -> float:
    """Median time of one call in us, in batches that are issued without waiting."""
    found = []
    for _ in range(BATCHES):
        wait()
        begin = time.perf_counter_ns()
        for _ in range(BATCH):
            call()
        found.append((time.perf_counter_ns() - begin) / BATCH / 1000)
    wait()
    return statistics.median(found)


def to_idle(call: Callable[[], object], wait: Callable[[], None]) -> tuple[float, float]:
    """Median times in us of single calls to an idle device: until the call returns, and until the device is idle."""
    issued, ready = [], []
    for _ in range(BATCH):
        wait()
        begin = time.perf_counter_ns()
        result = call()
        issued.append((time.perf_counter_ns() - begin) / 1000)
        wait()
        ready.append((time.perf_counter_ns() - begin) / 1000)
        del result
    return statistics.median(issued), statistics.median(ready)


def parts(function: Any, tensors: Sequence[Any], options: dict[str, Any], wait: Callable[[], None]) -> dict[str, float]:
    """Where the time of a kept call goes, in us; empty for a call that is not kept."""
    module = sys.modules.get(f"{function.__module__.partition('.')[0]}._kept")
    if module is None or not hasattr(function, "__wrapped__"):
        return {}
    kind = (function.__wrapped__, *map(module.kind_of, tensors), *options.items())
    plan = module._thread.plans.get(kind)
    if plan is None:
        return {}
    new = [allocate(tensors[0]) for allocate in plan.allocations]
    addresses = [x.data_ptr() for x in (*tensors, *new)]
    stream = 0 if plan.device is None else module.current_stream(plan.device)

    def look_up() -> Any:
        found = (function.__wrapped__, *map(module.kind_of, tensors), *options.items())
        return module._thread.plans.get(found)

    def launches() -> None:
        for issue in plan.launches:
            issue(addresses, stream)

    return {
        "look up": steady(look_up, wait),
        "allocate": steady(lambda: [allocate(tensors[0]) for allocate in plan.allocations], wait),
        "launch": steady(launches, wait),
    }


def measured(operation: str, patterns: Sequence[str], where: Any, device: Any, dtype: str) -> list[Cost]:
    """The costs of all implementations of an operation that run on the device and match."""
    import torch

    op = ops.get(operation)
    case = op.case(SHAPES[operation], dtype)
    tensors = op.make_inputs(case, 0, device)
    options = op.arguments(case)
    costs: list[Cost] = []
    torch_us: float | None = None
    found = sorted(builtin.implementations(operation), key=lambda each: each.name != "torch")
    for each in found:
        if each.name != "torch" and patterns and not any(fnmatch(each.name, pattern) for pattern in patterns):
            continue
        if each.obstacle(where, case) is not None:
            continue
        adapter = each.adapter
        inputs = tuple(map(adapter.to_native, tensors))
        try:
            function = each.function()
            for _ in range(20):
                adapter.wait(function(*inputs, **options))
        except NotImplementedError:
            continue
        except Exception as error:  # one line that fails does not end the table
            print(f"{operation} {each.name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue

        def call(function: Any = function, inputs: Any = inputs) -> Any:
            return function(*inputs, **options)

        wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        loop_us = steady(call, wait)
        torch_us = loop_us if each.name == "torch" else torch_us
        written = getattr(function, "__wrapped__", None) if each.framework in LIMITS else None
        as_written = None if written is None else steady(lambda w=written, i=inputs: w(*i, **options), wait)
        issue_us, ready_us = to_idle(call, wait)
        column = timing.measure(
            [timing.Call(each.name, call, adapter.wait)], device=device, cache="warm", budget_s=0.02
        )[each.name]
        limit = 1.5 if operation in ELEMENTWISE and each.framework in LIMITS else LIMITS.get(each.framework)
        costs.append(
            Cost(
                operation,
                each.name,
                loop_us,
                None if torch_us is None else loop_us / torch_us,
                limit,
                as_written,
                issue_us,
                column.dispatch_us,
                ready_us,
                column.latency_us,
                parts(function, inputs, options, wait) if each.framework in LIMITS else {},
            )
        )
    return costs


def table(costs: Sequence[Cost]) -> str:
    """The costs as Markdown."""
    head = ["operation", "implementation", "loop us", "vs torch", "as written us", "dispatch us", "its loop",
            "latency us", "its loop", "look up", "allocate", "launch"]  # fmt: skip
    rows = [
        [
            each.operation,
            each.implementation,
            *(number(value, 3) for value in (each.loop_us, each.vs_torch, each.as_written_us, each.dispatch_us,
                                             each.issue_us, each.latency_us, each.ready_us)),
            *(number(each.parts.get(name), 3) for name in ("look up", "allocate", "launch")),
        ]
        for each in costs
    ]  # fmt: skip
    return pipe_table(head, rows, set(head[2:]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--op", action="append", choices=sorted(SHAPES), help="operation; default: all")
    parser.add_argument("--impl", action="append", default=[], help="pattern of implementations beside torch")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--out", type=Path, help="folder for host_cost.json and host_cost.md")
    args = parser.parse_args(argv)
    where = resolve(None)
    for name in frameworks.names():
        frameworks.get(name).prepare(where)
    device = torch_device(where)
    costs = [cost for name in args.op or SHAPES for cost in measured(name, args.impl, where, device, args.dtype)]
    text = table(costs)
    print(text)
    if args.out is not None:
        write_atomically(args.out / "host_cost.md", text + "\n")
        write_atomically(args.out / "host_cost.json", json.dumps([asdict(each) for each in costs], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
