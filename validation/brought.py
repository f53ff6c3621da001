"""Tries public problems: each must load, and its own torch model must agree with its truth and bound.

    python -m validation.brought kernelbench FOLDER        the .py files below, as of KernelBench's KernelBench/
    python -m validation.brought gpumode FOLDER            the folders below with a task.yml
    python -m validation.brought kernelbench FOLDER --device cuda --part 0/4       a quarter of them, on a GPU
    python -m validation.brought kernelbench FOLDER --device cuda --sizes small    12 such processes share a GPU

Each problem runs in a process of its own. On a CPU, and with `--sizes small`, it has the smallest sizes of a ladder
that it accepts, otherwise on a GPU the sizes of its file. It prints a line for each problem: `ok`, or the reason. The
public files are not part of this tree.
"""

from __future__ import annotations

import argparse
import ast
import os
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from suite import custom
from suite.checking.check import check
from suite.checking.problem import Problem
from suite.custom.file import source_of
from suite.custom.truth import RandomReferenceError
from suite.frameworks.torch import ADAPTER
from suite.implementations.reference import find
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.source import Kind

CAPS = (8, 16, 32, 64, 128, 256, 1024, 1 << 62)
"""Even sizes are halved until they are at most one of these; the first with which the problem runs is used."""
BATCH, BATCH_CAP = "batch_size", 2
"""Only this size is halved, before the sizes of the file are tried: other sizes of a model may depend on each other."""
DRAWS = ("get_inputs", "get_init_inputs")
MEMORY_BYTES, LIMIT_S = 8 << 30, 60
"""Memory of a problem on a CPU, and processor time on any device."""
MEMORY_SHARE = 0.2
"""Share of a GPU's memory for a problem in small sizes. Several processes share it, and few need so much at once."""


def problems(kind: Kind, folder: Path) -> list[Path]:
    found = folder.rglob("*.py") if kind == "kernelbench" else (each.parent for each in folder.rglob("task.yml"))
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("kind", choices=("kernelbench", "gpumode"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every Nth problem")
    parser.add_argument("--part", metavar="I/N", default="0/1", help="take part I of N, from 0 on")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the problems run (cpu)")
    parser.add_argument("--sizes", choices=("small", "file"), help="the sizes on a GPU (file); a CPU has small ones")
    given = parser.parse_args()
    device, small = torch.device(given.device), given.sizes == "small" or given.device == "cpu"
    first, parts = map(int, given.part.split("/"))
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for path in problems(given.kind, given.folder)[:: given.every][first::parts]:
        found = in_child(given.kind, path, device, small)
        counts[found.partition(":")[0]] += 1
        print(f"{path.relative_to(given.folder)}  {found}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))


def in_child(kind: Kind, path: Path, device: torch.device, small: bool) -> str:
    """The outcome of `attempt` in a process with limits on memory and time."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        if device.type == "cpu":  # CUDA reserves more addresses than it uses
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)  # of processor time: the machine may be busy
        try:
            found = attempt(kind, path, device, small)
        except BaseException as error:
            found = f"refused: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return found or (f"too long: {LIMIT_S} s" if status == signal.SIGPROF else f"died: status {status}")


def attempt(kind: Kind, path: Path, device: torch.device, small: bool) -> str:
    """`ok` if the torch model of the problem agrees; else the reason. Raises the error of the largest sizes."""
    if device.type == "cuda" and small:
        torch.cuda.set_per_process_memory_fraction(MEMORY_SHARE)
    with TemporaryDirectory() as folder:
        if not small:
            op = custom.find(source_of(path, kind))
            return judged(op, op.default_cases(device.type)[0], device)
        candidates = by_shape(path) if kind == "gpumode" else by_text(path, Path(folder), device)
        for op, case in candidates:
            try:
                return judged(op, case, device)
            except RandomReferenceError:  # in any size
                raise
            except Exception as error:
                last = error
        raise last


def judged(op: Operation, case: Case, device: torch.device) -> str:
    op.output_shape(case)  # without its numbers: sizes that do not fit together are refused at once
    found = check(find(case, "torch").function, ADAPTER, Problem(case, 0, device))
    return "ok" if found.agrees else f"wrong: {case.label}: {found.reason[:150]}"


def by_shape(path: Path) -> Iterator[tuple[Operation, Case]]:
    op = custom.find(source_of(path, "gpumode"))
    default = op.default_cases("cpu")[0].shape
    for shape in dict.fromkeys(tuple(halved(size, cap) for size in default) for cap in CAPS):
        yield op, op.case(shape, op.dtypes[0])


def by_text(path: Path, folder: Path, device: torch.device) -> Iterator[tuple[Operation, Case]]:
    """Yield the problem with smaller integers at module level and in the functions that draw its inputs."""
    written = path.read_text(encoding="utf-8")
    smaller = [cut(written, cap) for cap in CAPS]
    for text in dict.fromkeys((*smaller[:-1], cut(written, BATCH_CAP, BATCH), smaller[-1])):
        copy = folder / path.name
        copy.write_text(text, encoding="utf-8")
        op = custom.find(source_of(copy, "kernelbench"))
        yield op, op.default_cases(device.type)[0]


def cut(text: str, cap: int, only: str = "") -> str:
    """Halve the integers at module level and in DRAWS until they are at most `cap`. only: the name of the only one."""
    tree = ast.parse(text)
    for statement in tree.body:
        if only:
            applies = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == only
        else:
            applies = isinstance(statement, ast.Assign) or getattr(statement, "name", "") in DRAWS
        if applies:
            for node in ast.walk(statement):
                if isinstance(node, ast.Constant) and type(node.value) is int:
                    node.value = halved(node.value, cap)
    return ast.unparse(tree)


def halved(size: int, cap: int) -> int:
    while size > cap and size % 2 == 0:
        size //= 2
    return size


if __name__ == "__main__":
    main()
