"""Runs the CUDA kernels of the tree, which are right, under the checked emulation, and counts its false alarms.

    python -m validation.checked_kernels --op softmax --op lstm --impl cuda/persistent
    nice python -m validation.checked_kernels --op all --out checked_kernels.csv

Each `.cu` implementation that runs on a CPU is called on each telling case of its operation, in each dtype and
precision. Each access of its kernels is checked as for a file of `--with`. A line of the output counts the calls of an
implementation in one dtype and precision: passed and declined; it also has the first alarm. `--resume` skips the lines
that the file of `--out` has. Exit status: 1 if there is an alarm or a wrong result.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from suite import ops
from suite.checking import diagnosis
from suite.checking.problem import Problem, Problems
from suite.checking.telling_cases import probe
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.implementations.implementation import Implementation

HERE = Device("cpu", name="CPU")
CPU = torch.device("cpu")
Part = tuple[str, str, str]
"""Implementation, dtype and precision."""


@dataclass(frozen=True)
class Calls:
    """The calls of an implementation on the telling cases of one dtype and precision."""

    operation: str
    implementation: str
    dtype: str
    precision: str
    passed: int
    declined: int
    alarm: str
    """The first alarm or wrong result, after which no case is called; empty without one."""
    seconds: int


def lines(operation: str, patterns: Sequence[str]) -> list[Implementation]:
    """The CUDA implementations of an operation that run on a CPU, and whose names match one of the patterns."""
    return [
        each
        for each in builtin.implementations(operation)
        if each.framework == "cuda"
        and each.obstacle(HERE) is None
        and any(fnmatch.fnmatch(each.name, pattern) for pattern in patterns)
    ]


def calls(operation: str, patterns: Sequence[str], done: set[tuple[str, Part]]) -> Iterator[Calls]:
    """Call the implementations of an operation. Inputs and truths of a dtype are made once."""
    op, found = ops.get(operation), lines(operation, patterns)
    for dtype in op.dtypes:
        for precision in op.precisions(dtype):
            left = [each for each in found if (operation, (each.name, dtype, precision)) not in done]
            problems = Problems(op.telling_cases(dtype, precision), lambda case: Problem(case, 0, CPU))
            for each in left:
                yield checked_calls(each, problems, dtype, precision)


def checked_calls(implementation: Implementation, problems: Problems, dtype: str, precision: str) -> Calls:
    """Call an implementation on each problem, with its accesses checked, up to the first alarm."""
    begin, operation, case_name = time.monotonic(), implementation.operation, ""

    def remember(name: str) -> None:
        nonlocal case_name
        case_name = name

    function = getattr(implementation.load(), operation)
    passed, declined = 0, 0
    try:
        with implementation.adapter.checks_memory(HERE):
            found = probe(lambda case: function, implementation.adapter, problems, on_case=remember)
        passed, declined, alarm = len(found.passed), len(found.not_covered), found.reason
    except Exception as error:  # an error of the emulation is an alarm
        alarm = f"{type(error).__name__}: {error} (in the telling case {case_name})"
    seconds = round(time.monotonic() - begin)
    return Calls(operation, implementation.name, dtype, precision, passed, declined, alarm, seconds)


def _done(path: Path | None) -> set[tuple[str, Part]]:
    if path is None or not path.exists():
        return set()
    with path.open(newline="", encoding="utf-8") as file:
        return {(r["operation"], (r["implementation"], r["dtype"], r["precision"])) for r in csv.DictReader(file)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", choices=(*ops.alone(), "all"), required=True, help="may be repeated")
    parser.add_argument("--impl", action="append", help="name or pattern; may be repeated; default: all of CUDA")
    parser.add_argument("--out", type=Path, help="CSV file; lines are appended as they come")
    parser.add_argument("--resume", action="store_true", help="skip the lines that the file of --out has")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the problems are small
    diagnosis.BUDGET_S = 0.0  # alarms need no explanation
    done = _done(options.out) if options.resume else set()
    alarms = 0
    for name in ops.alone() if "all" in options.op else options.op:
        for each in calls(name, options.impl or ["*"], done):
            alarms += bool(each.alarm)
            print(*asdict(each).values(), flush=True)
            if options.out:
                _append(options.out, each)
    return int(alarms > 0)


def _append(path: Path, each: Calls) -> None:
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        if is_new:
            rows.writerow([field.name for field in fields(Calls)])
        rows.writerow(asdict(each).values())


if __name__ == "__main__":
    raise SystemExit(main())
