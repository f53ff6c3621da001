"""Tries public problems: each must load, and its own torch model must agree with its truth and bound.

    python -m validation.brought kernelbench FOLDER        the .py files below, as of KernelBench's KernelBench/
    python -m validation.brought gpumode FOLDER            the folders below with a task.yml

Each problem runs in a process of its own on the CPU, in the smallest sizes of a ladder that it accepts. It prints a
line for each problem: `ok`, or the reason. The public files are not part of this tree.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
from collections import Counter
from pathlib import Path

from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.problem.source import Kind

CAPS = (8, 16, 32, 64, 128, 256, 1024, 1 << 62)
"""Sizes are halved until they are no larger than one of these; the first with which the problem runs is used."""
MEMORY_BYTES, LIMIT_S = 8 << 30, 120


def problems(kind: Kind, folder: Path) -> list[Path]:
    found = folder.rglob("*.py") if kind == "kernelbench" else (each.parent for each in folder.rglob("task.yml"))
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("kind", choices=("kernelbench", "gpumode"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every Nth problem")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for path in problems(given.kind, given.folder)[:: given.every]:
        found = in_child(given.kind, path)
        counts[found.partition(":")[0]] += 1
        print(f"{path.relative_to(given.folder)}  {found}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))


def in_child(kind: Kind, path: Path) -> str:
    """The outcome of `attempt` in a process with limits on memory and time."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)  # of processor time: the machine may be busy
        try:
            found = attempt(kind, path)
        except BaseException as error:
            found = f"refused: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return found or (f"too long: {LIMIT_S} s" if status == signal.SIGPROF else f"died: status {status}")


def attempt(kind: Kind, path: Path) -> str:
    """`ok` if the torch model of the problem agrees; else the reason."""
    import torch

    from suite import custom
    from suite.checking.check import check
    from suite.checking.problem import Problem
    from suite.custom.file import source_of
    from suite.frameworks.torch import ADAPTER
    from suite.implementations.reference import find

    op = custom.find(source_of(path, kind))
    case = op.case(smallest(op), op.dtypes[0])
    found = check(find(case, "torch").function, ADAPTER, Problem(case, 0, torch.device("cpu")))
    return f"ok: {case.label}" if found.agrees else f"wrong: {case.label}: {found.reason[:150]}"


def smallest(op: Operation) -> Shape:
    """The smallest sizes of the ladder that the operation runs with."""
    default = op.default_cases("cpu")[0].shape
    shapes = dict.fromkeys(tuple(halved(size, cap) for size in default) for cap in CAPS)
    *ladder, last = shapes
    for shape in ladder:
        try:
            op.output_shape(op.case(shape, op.dtypes[0]))
            return shape
        except Exception:
            continue
    op.output_shape(op.case(last, op.dtypes[0]))
    return last


def halved(size: int, cap: int) -> int:
    while size > cap and size % 2 == 0:
        size //= 2
    return size


if __name__ == "__main__":
    main()
