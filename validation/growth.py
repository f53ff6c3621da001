"""Measures time and memory of a run by its number of rows: `python validation/growth.py`.

Prints the size of a message and the table of docs/scaling.md. Each size runs in its own process, so that its memory is
that of the size.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from suite.cluster.ledger import Ledger
from suite.cluster.messages import Finished, decode, encode
from suite.hardware.device import resolve
from suite.problem.case import Case
from suite.report.write import report
from suite.results.csv_file import read_rows
from suite.results.row import Attempt, Mode, Row
from suite.results.store import Results
from suite.runner.observer import Observer
from suite.runner.options import Options
from suite.runner.plan import Job, plan
from suite.runner.selection import Selection

SIZES = (100, 1_000, 10_000, 100_000)
NAMES = ("torch", "triton", "cuda", "jax")
"""The implementations of a case."""
SAMPLES = 100
"""Samples of a row."""
HEADER = (
    "| rows | bookkeeping, s | store a case, s | memory, MB | write at the end, s | CSV, MB | read, s "
    "| report, s | page, MB | memory, MB |"
)


def cases(count: int) -> list[Case]:
    """Cases of two dimensions, so that a report draws no line through sizes."""
    return [Case("matrix_add", (("M", 1 + number), ("N", 64))) for number in range(count)]


def rows_of(case: Case, number: int) -> tuple[Row, ...]:
    """Synthetic rows of a case, as from a GPU. `number` is the place of the case."""
    found = []
    for place, name in enumerate(NAMES):
        row = Row(case.operation, case.label, case.dtype, case.precision, name, Mode.NATIVE, device="cuda:0")
        us = 2.0 + number % 97 + place
        row.fill({"device_us": us, "device_us_low": us * 0.99, "device_us_high": us * 1.01, "recorder": "cupti"})
        row.fill({"samples": SAMPLES, "timed": Attempt.DONE, "error_ratio": 0.5, "gb_per_s": 1000.0, "of_limit": 0.5})
        row.fill({"host": f"host-{number % 125}", "gpu": f"GPU-{number % 1000:036d}", "driver": "580.95.05"})
        row.fill({"vendor": "ATen" if name == "torch" else "", "vs_best": (2.0 + number % 97) / us})
        row.sample_us = tuple(round(us * (1 + (each * 7919 % 100 - 50) / 5000), 3) for each in range(SAMPLES))
        found.append(row)
    return tuple(found)


def take_all(every: list[Case]) -> None:
    """Give out every task of a run and take its rows, without a device or a folder."""
    device = resolve("cpu")
    (job,) = plan(Selection(("matrix_add",), NAMES, shapes=("M=1,N=64",), dtypes=("float32",)), device)
    ledger = Ledger([Job(job.op, tuple(every), job.implementations)], Options(device), Observer(), {})
    while (task := ledger.take(set(), "GPU")) is not None:
        answer = Finished(task.number, rows_of(task.case, task.number))
        ledger.store(task.number, answer.rows)
        ledger.finish(task.number, answer.rows)
    assert len(ledger.rows) == len(every) * len(NAMES)


def timed(act: Callable[[], object]) -> float:
    """Processor time in seconds; unlike wall time, other processes hardly lengthen it."""
    begin = time.process_time()
    act()
    return time.process_time() - begin


def peak_mb() -> float:
    """The peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(count: int) -> Iterator[float]:
    """The numbers of the table for `count` rows. Each row is held twice, as in a submitting process."""
    every = cases(count // len(NAMES))
    yield timed(lambda: take_all(every))
    made = [row for number, case in enumerate(every) for row in rows_of(case, number)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        table, page = folder / "matrix_add.csv", folder / "report" / "report.html"
        environment = {"device": {"name": "NVIDIA H200", "type": "cuda"}, "host": {}, "packages": {}}
        with Results(folder, environment, operations=["matrix_add"]) as results:
            results.put("matrix_add", made[: -len(NAMES)])
            yield timed(lambda: results.put("matrix_add", made[-len(NAMES) :]))
            yield peak_mb()
            yield timed(results.complete)
        yield table.stat().st_size / 1e6
        yield timed(lambda: list(read_rows(table)))
        yield timed(lambda: report([folder], ["html"], folder / "report", open_it=False))
        yield page.stat().st_size / 1e6
        yield peak_mb()


def print_message(times: int = 1000) -> None:
    """Print size and time of the message with the rows of a case."""
    answer = Finished(0, rows_of(cases(1)[0], 0))
    text = encode(answer)
    write, read = (
        timed(lambda act=act: [act() for _ in range(times)]) / times  # type: ignore[misc]
        for act in (lambda: encode(answer), lambda: decode(text))
    )
    rows = f"{len(NAMES)} rows with {SAMPLES} samples each"
    print(f"{rows} as JSON: {len(text) / 1e3:.1f} kB, {write * 1e3:.2g} ms to write, {read * 1e3:.2g} ms to read")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest number of rows")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rows:
        print(f"| {given.rows:,} |", end="", flush=True)
        for number in measure(given.rows):
            print(f" {number:.2g} |" if number < 100 else f" {number:,.0f} |", end="", flush=True)
        print()
        return
    print_message()
    print(HEADER, "|---" * (HEADER.count("|") - 1) + "|", sep="\n", flush=True)
    for count in (each for each in SIZES if each <= given.most):
        subprocess.run([sys.executable, __file__, "--rows", str(count)], check=True)


if __name__ == "__main__":
    main()
