"""Compares the time of `compare` on all GPUs of this host with that on one, over a drawn list of cases.

    python -m validation.fleet --out runs/fleet
    python -m validation.fleet --out runs/fleet --cases 32 --seed 3 --seconds 300

A first run, which is not counted, builds and compiles all kernels and times the configurations of autotuned ones:
otherwise the second run would do so for the third too. Then the cases are checked and timed on all GPUs, then on one.
The cases are default cases of different operations in one dtype; cases whose truth takes long are not drawn. `from the
first row to the last case` leaves out the start of the processes and the report at the end, which are not shorter with
more GPUs, and are a small part of a run of all cases. Passes if this time on all GPUs, divided by that on one, is at
most --share, and if the rows of the two runs agree by the rule of `a_a_rates.py`, with no row in one run alone. Without
GPUs, `-- --no-time` tries the commands with processes on the CPU.

Exit status: 0 if it passes, 1 if not or if the time was over, 2 if the runs cannot be compared.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from suite import ops
from suite.core.errors import SuiteError
from suite.core.files import write_atomically
from suite.diff.judge import THRESHOLD
from suite.diff.load import load
from suite.models.workload import LayerShape, Workload
from suite.problem.case import Case
from validation import a_a_rates

ROOT = Path(__file__).resolve().parents[1]
DTYPE = "bfloat16"
MAX_FLOPS, MAX_BYTES = 2e11, 7e8
"""Larger cases are not drawn."""
SHARE = 0.55
SECONDS = 200.0
POLL_S = 0.05
FIRST = "first"
LAST_CASE = re.compile(r"^\[[\d.]+ s, (\d+)/\1\]", re.MULTILINE)
"""The line that `compare` prints when the last case has ended."""
GRACE_S = 15.0
"""Time for an interrupted run to write its tables."""


def draw(cases: int, seed: int, device_type: str = "cuda") -> list[Case]:
    """`cases` default cases, without operations over ranks: at first one of each operation, then further ones."""
    chance = random.Random(seed)
    rounds: list[list[Case]] = []
    for op in map(ops.get, ops.names()):
        if op.over_ranks:
            continue
        found = [case for case in op.default_cases(device_type) if case.dtype == DTYPE]
        found = [case for case in found if op.flops(case) <= MAX_FLOPS and op.bytes(case) <= MAX_BYTES]
        chance.shuffle(found)
        for number, case in enumerate(found):
            rounds += [[]] if number == len(rounds) else []
            rounds[number].append(case)
    for each in rounds:
        chance.shuffle(each)
    return [case for each in rounds for case in each][:cases]


def workload(cases: Sequence[Case]) -> Workload:
    """The cases as a file for `--shapes-from`."""
    shapes = [
        LayerShape(
            case.label,
            1,
            case.operation,
            dict(case.dims),
            dict(case.options),
        )
        for case in cases
    ]
    return Workload("drawn cases", 1, 1, 1, 1, DTYPE, shapes)


def commands(cases: Sequence[Case], shapes: Path, out: Path, extra: Sequence[str]) -> dict[str, list[str]]:
    """The runs by the names of their folders, in their order."""
    names = ",".join(dict.fromkeys(case.operation for case in cases))
    common = [sys.executable, "-m", "suite", "compare", "--op", names, "--shapes-from", str(shapes), "--dtype", DTYPE]
    common += ["--inputs", "none", "--sustained", "none", *extra]
    runs = {FIRST: ["--gpus", "all"], "all": ["--gpus", "all"], "one": ["--gpus", "1"]}
    return {name: [*common, *options, "--out", str(out / name)] for name, options in runs.items()}


@dataclass(frozen=True)
class Run:
    """A run of `compare`: the time it took, and the times of its first row and of its last case, from its start."""

    seconds: float
    first_row_s: float
    last_case_s: float
    complete: bool

    def __str__(self) -> str:
        cut = "" if self.complete else ", cut"
        rows = f"first row after {self.first_row_s:.1f} s, last case after {self.last_case_s:.1f} s"
        return f"{self.seconds:.1f} s{cut}, {rows}"


def run(command: Sequence[str], folder: Path, limit_s: float) -> Run:
    """Run `compare` into `folder`. It is interrupted after `limit_s`; without rows it did not run.

    Its lines, with the time at which each case ended, are in a text file beside the folder.
    """
    begin, lines = time.monotonic(), folder.with_suffix(".txt")
    with lines.open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    first, last, cut = 0.0, 0.0, False
    while process.poll() is None:
        time.sleep(POLL_S)
        passed = time.monotonic() - begin
        first = first or (passed if any(folder.glob("*.csv")) else 0.0)
        last = last or (passed if LAST_CASE.search(lines.read_text(errors="replace")) else 0.0)
        if not cut and passed > limit_s:
            cut, limit_s = True, passed
            process.send_signal(signal.SIGINT)
        elif cut and passed > limit_s + GRACE_S:
            process.kill()
    seconds = time.monotonic() - begin
    complete = not cut and process.returncode in (0, 1) and any(folder.glob("*.csv"))
    return Run(seconds, first or seconds, last or seconds, complete)


def share(every: Run, one: Run, *, of_cases: bool = False) -> float:
    """The time on all GPUs over that on one; `of_cases`: from the first row to the last case."""
    if of_cases:
        return (every.last_case_s - every.first_row_s) / max(one.last_case_s - one.first_row_s, 1e-9)
    return every.seconds / one.seconds


def agreement(one: Path, every: Path) -> tuple[bool, list[str]]:
    """True if the rows of two folders agree, and the lines to print. Raises `SuiteError` if they are not comparable."""
    sides = [load(one), load(every)]
    rates, differing = a_a_rates.compare_all(sides, THRESHOLD)
    alone = [*(sides[0].rows.keys() ^ sides[1].rows.keys())]
    lines = ["  ".join(a_a_rates.cells(each)) for each in differing if each.verdict in a_a_rates.FALSE_VERDICTS]
    lines += [f"in one run alone: {' '.join(key)}" for key in sorted(alone)]
    return rates.passed and not alone, [*lines, str(rates)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a new folder, for the three runs")
    parser.add_argument("--cases", type=int, default=9, help="number of cases (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (%(default)s)")
    parser.add_argument("--share", type=float, default=SHARE, help="the largest share that passes (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time for the three runs (%(default)g)")
    parser.add_argument("compare", nargs="*", help="after --: further options of `compare`")
    given = parser.parse_args(arguments)
    if given.out.exists():
        parser.error(f"{given.out} exists already")
    cases = draw(given.cases, given.seed, "cuda" if torch.cuda.is_available() else "cpu")
    shapes, end = given.out / "cases.json", time.monotonic() + given.seconds
    given.out.mkdir(parents=True)
    write_atomically(shapes, workload(cases).text())
    runs: dict[str, Run] = {}
    for name, command in commands(cases, shapes.resolve(), given.out.resolve(), given.compare).items():
        left = max(end - time.monotonic(), 0.0)
        runs[name] = run(command, given.out / name, left)
        print(f"{name}: {runs[name]}", flush=True)
        if not runs[name].complete:
            return 1
    every, one = runs["all"], runs["one"]
    of_cases = share(every, one, of_cases=True)
    print(f"{len(cases)} cases: {share(every, one):.3f} of the time of one GPU", end="; ")
    print(f"from the first row to the last case {of_cases:.3f}")
    try:
        agree, lines = agreement(given.out / "one", given.out / "all")
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0 if agree and of_cases <= given.share else 1


if __name__ == "__main__":
    sys.exit(main())
