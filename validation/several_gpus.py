"""Runs the tables of the operations over ranks on the GPUs of this host, and compares them with the aims in TABLES.

    python -m validation.several_gpus --gpus 4 --out results/nvidia-h100-80gb-hbm3/ranks4
    python -m validation.several_gpus --gpus 4 --out ... --step operations --step tests
    python -m validation.several_gpus --read results/nvidia-h100-80gb-hbm3/ranks*

Others publish these sizes. They are those of all ranks together, so that tables of 2, 4 and 8 GPUs solve the same
problems. Each table has its own folder. A second run takes the rows that are there, and runs the others. The aims are
goals of this project, not results. The step `build` compiles the CUDA sources of the tables first, as many at a time
as there are cores: the ranks would compile one after the other. Without GPUs, `--divide 64` tries the commands on a
CPU, with every dimension 64 times smaller.

Exit status: 0 if all steps have run, 1 if one failed or its time ran out, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from cuda_ref.build import compiler, libraries
from suite.hardware.host import cores
from suite.results.csv_file import read_rows
from suite.results.render import pipe_table
from suite.results.row import Row, Status

ROOT = Path(__file__).resolve().parents[1]
RANKS = (2, 4, 8)
STEPS = ("build", "tables", "operations", "tests")
SOURCES = ("all_reduce/*", "hopper/*", "linear_sigmoid_grad/wgmma", "matmul/_*", "matmul/wgmma", "ring_attention/wgmma")
"""The CUDA sources that the timed implementations may launch."""
SECONDS = 580.0
"""Time for all steps of a run."""
GRACE_S = 15.0
"""Time for a command to end after its interruption: a rank may wait for another one forever."""
NCCL, FASTEST_OF_TORCH = ("torch",), ("torch", "torch/symm_fused")
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Problem:
    """A problem of all ranks together, and its aims: the baseline's time over that of our fastest implementation."""

    name: str
    of_rank: Callable[[int], Sizes]
    """Returns the sizes of one rank, which are those of a case, for a number of ranks."""
    aims: Mapping[int, float]
    """By the number of ranks; empty if there is no aim."""


@dataclass(frozen=True)
class Table:
    operation: str
    problems: tuple[Problem, ...]
    baseline: tuple[str, ...] = FASTEST_OF_TORCH
    """The fastest of these implementations is the baseline."""
    options: tuple[str, ...] = ()


def _vector(mebibytes: float, aims: Mapping[int, float]) -> Problem:
    return Problem(f"{mebibytes:g} MiB", lambda ranks: {"N": int(mebibytes * 2**19)}, aims)


def _rows_and_columns(m: int, n: int, k: int, aims: Mapping[int, float]) -> Problem:
    """x split by rows, w by columns."""
    return Problem(f"{m} x {n} x {k}", lambda ranks: {"M": m // ranks, "N": n // ranks, "K": k}, aims)


def _terms(m: int, n: int, k: int, aims: Mapping[int, float]) -> Problem:
    """K split over the ranks; each returns its rows."""
    return Problem(f"{m} x {n} x {k}", lambda ranks: {"M": m // ranks, "N": n, "K": k // ranks}, aims)


def _batch(m: int, n: int, k: int) -> Problem:
    return Problem(f"{m} x {n} x {k}", lambda ranks: {"M": m // ranks, "N": n, "K": k}, {})


def _sequence(s: int) -> Problem:
    sizes = {"B": 1, "H": 16, "H_kv": 16, "D": 128}
    return Problem(f"S = {s}, 16 heads of 128", lambda ranks: {**sizes, "S": s // ranks}, {})


FEW_ROWS = dict.fromkeys(RANKS, 0.95)
TABLES = (
    Table(
        "all_reduce",
        (
            _vector(1 / 16, {2: 1.5}),
            _vector(1, {2: 1.5, 4: 2.0, 8: 2.0}),
            _vector(16, {4: 1.3, 8: 1.3}),
            _vector(256, {2: 0.98}),
        ),
        NCCL,
    ),
    Table(
        "all_gather_matmul",
        (
            _rows_and_columns(4096, 14336, 4096, {2: 1.25, 4: 1.35, 8: 1.35}),
            _rows_and_columns(8192, 8192, 8192, {2: 1.25, 4: 1.5, 8: 1.5}),
            _rows_and_columns(16384, 28672, 8192, {4: 1.2, 8: 1.2}),
            _rows_and_columns(128, 4096, 4096, FEW_ROWS),
        ),
        options=("--exclude", "cuda,jax/pallas"),
    ),
    Table(
        "matmul_reduce_scatter",
        (
            _terms(4096, 14336, 4096, {2: 1.25, 4: 1.5, 8: 1.5}),
            _terms(8192, 8192, 8192, {2: 1.25, 4: 1.4, 8: 1.4}),
            _terms(16384, 28672, 8192, {4: 1.35, 8: 1.35}),
            _terms(128, 4096, 4096, FEW_ROWS),
        ),
        options=("--exclude", "cuda"),
    ),
    Table(
        "data_parallel_grad",
        (_batch(8192, 4096, 4096), _batch(8192, 8192, 8192)),
        (*NCCL, "torch/overlapped", "torch/ddp"),
        options=("--exclude", "cuda"),
    ),
    Table(
        "ring_attention",
        (_sequence(8192), _sequence(16384)),
        (*NCCL, "torch/cudnn"),
        options=("--exclude", "cuda"),
    ),
)


def shape(problem: Problem, ranks: int, divide: int) -> str:
    """`M=1024,N=3584,K=4096`, a rank's sizes; at least 1 each. Batch and heads are not divided."""
    kept = ("B", "H", "H_kv", "D")
    sizes = problem.of_rank(ranks)
    return ",".join(f"{name}={size if name in kept else max(size // divide, 1)}" for name, size in sizes.items())


def commands(steps: Sequence[str], ranks: int, out: Path, divide: int) -> list[list[str]]:
    """The commands of `steps`, in their order. Each leaves its results in `out`."""
    compare = [sys.executable, "-m", "suite", "compare", "--inputs", "none", "--resume"]
    operations = [*compare, "--op", "all", "--gpus", "all", "--no-time", "--out", str(out / "operations")]
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "two_gpus", "tests", f"--junitxml={out / 'tests.xml'}"]
    tables = []
    for each in TABLES:
        shapes = [part for problem in each.problems for part in ("--shape", shape(problem, ranks, divide))]
        chosen = ["--op", each.operation, "--gpus", str(ranks), "--dtype", "bf16", *each.options, *shapes]
        tables.append([*compare, *chosen, "--out", str(out / each.operation)])
    build = [sys.executable, "-m", "validation.several_gpus", "--build"]
    by_step = {"build": [build], "tables": tables, "operations": [operations], "tests": [tests]}
    return [call for step in steps for call in by_step[step]]


def sources() -> list[str]:
    """The names of the CUDA sources that the tables need, as `cuda_ref.build` takes them."""
    found = [path for pattern in SOURCES for path in sorted(libraries.HERE.glob(f"{pattern}.cu"))]
    return [str(path.relative_to(libraries.HERE).with_suffix("")) for path in found]


def build(target: str) -> None:
    """Build the libraries of these sources for an architecture; those in the cache are kept. Raises `BuildError`."""
    names = [each for each in sources() if libraries.supports(each, target)]
    with ProcessPoolExecutor(min(cores(), len(names)), get_context("spawn")) as pool:
        print(f"{len(list(pool.map(libraries.library, names, [target] * len(names))))} CUDA sources are built")


def _build_for_this_gpu() -> int:
    import torch

    if torch.cuda.is_available():
        build(compiler.arch_of(*torch.cuda.get_device_capability()))
    return 0


def run(calls: Sequence[Sequence[str]], seconds: float) -> bool:
    """Run the commands in turn; the one that runs when the time is over is interrupted. True if all ended with 0."""
    end, complete = time.monotonic() + seconds, True
    for call in calls:
        print(*call[1:], flush=True)
        left = end - time.monotonic()
        if left <= 0:
            print("not run: the time is over", file=sys.stderr, flush=True)
            complete = False
            continue
        process = subprocess.Popen(call, cwd=ROOT)
        try:
            status = process.wait(left)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # `compare` then ends with what it has
            status = _ended(process)
        if status != 0:
            print(f"ended with {status}", file=sys.stderr, flush=True)
            complete = False
    return complete


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The status of a process that has been interrupted. It is killed if it does not end."""
    try:
        return process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@dataclass(frozen=True)
class Verdict:
    """Our fastest implementation of a problem beside the baseline."""

    operation: str
    problem: str
    ranks: int
    baseline: Row
    best: Row
    aim: float | None

    @property
    def ratio(self) -> float:
        return float(self.baseline.device_us or 0) / float(self.best.device_us or 1)

    @property
    def of_longer_part(self) -> float | None:
        """The longer of the product alone and the transfer alone over our time; None without these times."""
        parts = self.best.product_us, self.best.communication_us
        alone = [us for us in parts if us is not None]
        return max(alone) / float(self.best.device_us or 1) if alone else None

    @property
    def cells(self) -> list[str]:
        aim = "" if self.aim is None else f"{self.aim:g}{'' if self.ratio >= self.aim else ', missed'}"
        noisy = self.baseline.noisy or self.best.noisy
        baseline, best = (f"{row.device_us:,.1f} ({row.implementation})" for row in (self.baseline, self.best))
        part = "" if self.of_longer_part is None else f"{self.of_longer_part:.2f}"
        ratio = f"{self.ratio:.3f}{', noisy' if noisy else ''}"
        return [self.operation, self.problem, str(self.ranks), baseline, best, ratio, aim, part]


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """A verdict for each problem, number of ranks and option, if the baseline and at least one of ours are timed."""
    timed = [row for row in rows if row.status is Status.OK and row.device_us]
    found = []
    for table in TABLES:
        for problem in table.problems:
            for ranks in RANKS:
                sizes = shape(problem, ranks, 1)
                here = [row for row in timed if row.operation == table.operation and _is_of(row, sizes, ranks)]
                for case in dict.fromkeys(row.case for row in here):
                    vendors = [row for row in here if row.case == case and row.implementation in table.baseline]
                    ours = [row for row in here if row.case == case and row.is_ours and not _is_torch(row)]
                    if vendors and ours:
                        name = f"{problem.name}, causal" if "causal" in case else problem.name
                        best = _fastest(vendors), _fastest(ours)
                        found.append(Verdict(table.operation, name, ranks, *best, problem.aims.get(ranks)))
    return found


def _fastest(rows: Sequence[Row]) -> Row:
    return min(rows, key=lambda row: float(row.device_us or 0))


def _is_torch(row: Row) -> bool:
    return row.implementation.startswith("torch")


def _is_of(row: Row, case: str, ranks: int) -> bool:
    wanted = {**dict(part.split("=") for part in case.split(",")), "ranks": str(ranks)}
    given = dict(part.split("=") for part in row.case.split(",") if "=" in part)
    return all(given.get(name) == size for name, size in wanted.items())


def table(found: Sequence[Verdict]) -> str:
    head = ["operation", "problem", "ranks", "baseline, us", "best of ours, us", "ratio", "aim", "of the longer part"]
    return pipe_table(head, [each.cells for each in found], right={"ranks", "ratio", "aim", "of the longer part"})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, choices=RANKS, help="ranks, one for each GPU")
    parser.add_argument("--out", type=Path, help="the folder of the tables")
    parser.add_argument("--step", action="append", choices=STEPS, help="by default all, in this order")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time for all steps (%(default)g)")
    parser.add_argument("--divide", type=int, default=1, help="makes every dimension this many times smaller")
    parser.add_argument("--read", type=Path, nargs="+", help="folders of earlier tables, to judge and not to run")
    parser.add_argument("--build", action="store_true", help="only build the CUDA sources of the tables")
    given = parser.parse_args(arguments)
    if given.build:
        return _build_for_this_gpu()
    if given.read is None and (given.gpus is None or given.out is None):
        parser.error("give --gpus and --out, or --read, or --build")
    complete = True
    if given.read is None:
        complete = run(commands(given.step or STEPS, given.gpus, given.out, given.divide), given.seconds)
    files = [path for folder in given.read or [given.out] for path in sorted(folder.rglob("*.csv"))]
    print(table(verdicts([row for path in files for row in read_rows(path)])))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
