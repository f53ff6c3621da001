"""Measures the host time of one warm call, by a loop of its own beside the columns of `compare`.

    python validation/host_cost.py                                     # all operations, small sizes
    python validation/host_cost.py --op matmul --impl triton --impl torch --out results/nvidia-h200/proof

For each implementation it measures the time of one call in a steady loop, and its ratio to torch's, with and without
the plans of `_runtime/kept.py`. For a kept call it also measures the parts of its time: looking up, allocating,
launching. `dispatch_us` and `latency_us` of `suite.timing` are compared with loops of this program, on warm caches.

Exit status: 0 if every ratio is within its limit (CUDA 1.2, Triton 1.5, both 1.5 for elementwise operations) and every
column within 10% of its loop; 1 if not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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
from suite.results.render import pipe_table  # noqa: E402

SHAPES = {
    "vector_add": (1024,),
    "matrix_add": (32, 32),
    "sigmoid": (1024,),
    "sum": (32, 32),
    "softmax": (32, 1024),
    "rms_norm": (32, 1024),
    "layer_norm": (32, 1024),
    "matmul": (1024, 1024, 1024),
    "linear_sigmoid": (1024, 1024, 1024),
    "attention": (1, 4, 4, 256, 256, 64),
}
"""Sizes so small that the device ends a call before the host makes the next one."""
ELEMENTWISE = ("vector_add", "matrix_add", "sigmoid")
LIMITS = {"cuda": 1.2, "triton": 1.5}
BATCH, BATCH_US, BATCHES = 100, 3000, 15
"""A batch, the calls between two readings of the clock, takes BATCH_US and has at most BATCH calls, fewer than a stream
can queue. The median of this number of batches counts."""
TOLERANCE = 0.1
ROUNDS = 5
"""Measurements of a column between loops of this program. The median ratio counts, since the host's speed varies."""


@dataclass(frozen=True)
class Cost:
    """Times of one call in us. None: not measured, or no torch to compare with."""

    operation: str
    implementation: str
    loop_us: float
    vs_torch: float
    limit: float | None
    as_written_us: float | None
    dispatch_us: float | None
    dispatch_to_loop: float | None
    """`dispatch_us` over the time of the loops just before and after it; the median of some rounds."""
    ready_us: float
    latency_us: float | None
    latency_to_loop: float | None
    graph_us: float | None
    parts: dict[str, float]

    def faults(self) -> list[str]:
        """The numbers beyond their limits."""
        found = []
        if self.limit is not None and self.vs_torch > self.limit:
            found.append(f"{self.vs_torch:.2f} times torch's time, more than {self.limit}")
        for name, ratio in (("dispatch_us", self.dispatch_to_loop), ("latency_us", self.latency_to_loop)):
            if ratio is not None and abs(ratio - 1) > TOLERANCE:
                found.append(f"{name} is {ratio:.2f} times its loop")
        return [f"{self.operation} {self.implementation}: {each}" for each in found]


def steady_us(calls: Sequence[Callable[[], object]], wait: Callable[[], None]) -> list[list[float]]:
    """Time each call in us, once a round.

    A round has a batch of each, issued without waiting, so that all see the same speed of the host.
    """
    counts = []
    for call in calls:
        wait()
        begin = time.perf_counter_ns()
        call()
        wait()
        counts.append(max(5, min(BATCH, BATCH_US * 1000 // (time.perf_counter_ns() - begin))))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(BATCHES):
        for call, count, times in zip(calls, counts, found, strict=True):
            wait()
            begin = time.perf_counter_ns()
            for _ in range(count):
                call()
            times.append((time.perf_counter_ns() - begin) / count / 1000)
    wait()
    return found


def idle_us(call: Callable[[], object], wait: Callable[[], None]) -> float:
    """Return the median time in us of single calls from idle to idle device. A call before each warms caches."""
    found = []
    for _ in range(4 * BATCHES):
        call()
        wait()
        begin = time.perf_counter_ns()
        result = call()
        wait()
        found.append((time.perf_counter_ns() - begin) / 1000)
        del result
    return statistics.median(found)


def parts(function: Any, tensors: Sequence[Any], options: dict[str, Any], wait: Callable[[], None]) -> dict[str, float]:
    """Return the parts of a kept call's time in us; empty for a call that is not kept."""
    module = sys.modules.get(f"{function.__module__.partition('.')[0]}._kept")
    if module is None or not hasattr(function, "__wrapped__"):
        return {}
    plan = module._thread.latest.get(function.__wrapped__)
    if plan is None:
        return {}
    new = [allocate(tensors[0]) for allocate in plan.allocations]
    addresses = [x.data_ptr() for x in (*tensors, *new)]
    stream = 0 if plan.device is None else module.current_stream(plan.device)

    def look_up() -> bool:
        latest = module._thread.latest.get(function.__wrapped__)
        return latest.options == options and latest.matches(*tensors)

    def launches() -> None:
        for issue in plan.launches:
            issue(addresses, stream)

    def allocations() -> list[Any]:
        return [allocate(tensors[0]) for allocate in plan.allocations]

    times = steady_us([look_up, allocations, launches], wait)
    return dict(zip(("look up", "allocate", "launch"), map(statistics.median, times), strict=True))


@dataclass(frozen=True)
class Line:
    """One implementation with its inputs bound."""

    implementation: Any
    function: Any
    inputs: tuple[Any, ...]
    options: dict[str, Any]

    def call(self) -> Any:
        return self.function(*self.inputs, **self.options)

    def as_written(self) -> Any:
        return self.function.__wrapped__(*self.inputs, **self.options)

    @property
    def is_kept(self) -> bool:
        return self.implementation.framework in LIMITS and hasattr(self.function, "__wrapped__")


def lines(operation: str, patterns: Sequence[str], where: Any, device: Any, dtype: str) -> list[Line]:
    """Yield the implementations of an operation that run on the device and match, after warm-up calls; torch first."""
    op = ops.get(operation)
    case = op.case(SHAPES[operation], dtype)
    tensors, options = op.make_inputs(case, 0, device), op.arguments(case)
    found = []
    for each in sorted(builtin.implementations(operation), key=lambda each: each.name != "torch"):
        wanted = each.name == "torch" or not patterns or any(fnmatch(each.name, pattern) for pattern in patterns)
        if not wanted or each.obstacle(where, case) is not None:
            continue
        try:
            line = Line(each, each.function(), tuple(map(each.adapter.to_native, tensors)), options)
            for _ in range(20):
                each.adapter.wait(line.call())
        except NotImplementedError:
            continue
        except Exception as error:  # one failing implementation does not end the table
            print(f"{operation} {each.name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        found.append(line)
    return found


def columns_beside_loops(line: Line, device: Any, wait: Callable[[], None]) -> dict[str, float]:
    """Return the columns of `suite.timing` for a call, and their ratios to adjacent loops of this program."""
    adapter = line.implementation.adapter
    timed = timing.Call(line.implementation.name, line.call, adapter.wait, capture=adapter.capture)

    def loops() -> tuple[float, float]:
        return statistics.median(steady_us([line.call], wait)[0]), idle_us(line.call, wait)

    if device.type != "cuda":  # on a CPU both columns come from samples, with the work between them
        return {"ready_us": loops()[1]}
    found: dict[str, list[float]] = {}

    def note(name: str, value: float | None) -> None:
        if value is not None:
            found.setdefault(name, []).append(value)

    before = loops()
    for _ in range(ROUNDS):
        result = timing.measure([timed], device=device, cache="warm", budget_s=0.02)[timed.name]
        after = loops()
        columns = {"dispatch": result.dispatch_us, "latency": result.latency_us}
        for (name, column), *around in zip(columns.items(), before, after, strict=True):
            note(f"{name}_us", column)
            note(f"{name}_to_loop", None if column is None else column / statistics.mean(around))
        note("ready_us", after[1])
        note("graph_us", result.graph_us)
        before = after
    return {name: statistics.median(values) for name, values in found.items()}


def measured(found: Sequence[Line], device: Any) -> Iterator[Cost]:
    """Yield the costs of the implementations of one operation; the first is torch's."""
    import torch

    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    written = [line for line in found if line.is_kept]
    times = steady_us([*(line.call for line in found), *(line.as_written for line in written)], wait)
    as_written = {id(line): each for line, each in zip(written, times[len(found) :], strict=True)}
    for line, own in zip(found, times, strict=False):
        each = line.implementation
        columns = columns_beside_loops(line, device, wait)
        ours = each.framework in LIMITS
        yield Cost(
            each.operation,
            each.name,
            statistics.median(own),
            statistics.median(a / b for a, b in zip(own, times[0], strict=True)),
            (1.5 if each.operation in ELEMENTWISE else LIMITS[each.framework]) if ours else None,
            statistics.median(as_written[id(line)]) if line.is_kept else None,
            columns.get("dispatch_us"),
            columns.get("dispatch_to_loop"),
            columns["ready_us"],
            columns.get("latency_us"),
            columns.get("latency_to_loop"),
            columns.get("graph_us"),
            parts(line.function, line.inputs, line.options, wait) if line.is_kept else {},
        )


HEAD = ("operation", "implementation", "loop us", "vs torch", "as written us", "look up", "allocate", "launch",
        "dispatch us", "of loop", "idle us", "latency us", "of idle", "graph us")  # fmt: skip


def cells(cost: Cost) -> list[str]:
    """Return the cells of a row of the table."""
    split = [cost.parts.get(name) for name in ("look up", "allocate", "launch")]
    columns = [
        cost.dispatch_us,
        cost.dispatch_to_loop,
        cost.ready_us,
        cost.latency_us,
        cost.latency_to_loop,
        cost.graph_us,
    ]
    values = [cost.loop_us, cost.vs_torch, cost.as_written_us, *split, *columns]
    return [cost.operation, cost.implementation, *("" if value is None else f"{value:.2f}" for value in values)]


def table(costs: Sequence[Cost]) -> str:
    """Format the costs as Markdown."""
    return pipe_table(list(HEAD), [cells(each) for each in costs], set(HEAD[2:]))


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
    print(*HEAD, "beyond its limit", sep=" | ")
    costs: list[Cost] = []
    for name in args.op or SHAPES:
        for cost in measured(lines(name, args.impl, where, device, args.dtype), device):
            costs.append(cost)
            print(*cells(cost), *cost.faults(), sep=" | ", flush=True)
    if args.out is not None:
        write_atomically(args.out / "host_cost.md", table(costs) + "\n")
        write_atomically(args.out / "host_cost.json", json.dumps([asdict(each) for each in costs], indent=1) + "\n")
    return 1 if any(cost.faults() for cost in costs) else 0


if __name__ == "__main__":
    sys.exit(main())
