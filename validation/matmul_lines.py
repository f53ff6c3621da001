"""Times the implementations of matmul over shapes, a list or drawn ones, beside the vendor; writes tables and a plot.

python -m validation.matmul_lines --shapes shapes.csv --out lines/list.csv
python -m validation.matmul_lines --draws 60 --seed 107 --impl triton --impl 'triton/gluon' --out lines/draws_g.csv
python -m validation.matmul_lines --served --draws 60 --seed 501 --out lines/served_a.csv
python -m validation.matmul_lines --read lines/*.csv --write docs/lab/matmul.md --plot docs/img/matmul_lines.png

Compares every result with torch's once. `--build 0/8` to `--build 7/8`, run at once before, compile ahead."""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

from suite import frameworks, ops
from suite.core.integers import cdiv
from suite.doctor.local_device import torch_device
from suite.hardware.device import resolve
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.results.render import pipe_table
from suite.timing.intervals import RecorderError
from suite.timing.recorder import Recorder, Sample
from suite.timing.target import Target, target
from validation import matmul_shapes
from validation.matmul_plot import Point, plot

OP = ops.get("matmul")
BEGIN, END = "<!-- lines:begin -->", "<!-- lines:end -->"
VENDOR = "torch"
LINES = ("triton", "triton/auto", "triton/gluon", "cuda/auto", "cuda/wgmma", "jax/pallas", "jax")
HEAD = ("M", "N", "K", "layout", "dtype", "precision", "line", "us", "samples", "error", "kernels")
SETUP = "inputs"
ROUNDS = 8
SLOW_US, FEWER = 2000.0, 3
"""Time of a call in us, and the smaller number of samples of lines that take longer."""
WRONG = 0.01
"""Smallest relative norm of a difference to torch's result that rounding cannot cause; ten times as much in float8."""
WORST, SHOWN = 5, 3
"""Products of the profiles, and of a line in the table."""
COMPILING = 4
"""Threads of a process that builds."""


@dataclass
class Line:
    """An implementation bound to the inputs of one case."""

    implementation: Implementation
    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    options: dict[str, Any]

    def call(self) -> Any:
        result = self.function(*self.arrays, **self.options)
        self.implementation.adapter.wait(result)
        return result

    def discarded(self) -> None:
        self.call()


def implementations(patterns: Sequence[str]) -> list[Implementation]:
    """Return the vendor's implementation, then those that match a pattern."""
    found = [
        each
        for each in builtin.implementations("matmul")
        if each.name == VENDOR or any(fnmatch(each.name, pattern) for pattern in patterns)
    ]
    return sorted(found, key=lambda each: each.name != VENDOR)


def takes(each: Implementation, case: Case) -> bool:
    return case.dtype in (*DTYPES, *each.dtypes_beyond)


def bound(each: Implementation, case: Case, tensors: Sequence[torch.Tensor]) -> Line:
    return Line(each, each.function(), tuple(map(each.adapter.to_native, tensors)), OP.arguments(case))


class Timer:
    """Times the implementations of cases in turns, with a cold cache. All work on the device belongs to a sample."""

    def __init__(self, lines: Sequence[Implementation], device: torch.device, rounds: int) -> None:
        self.lines, self.device, self.rounds = list(lines), device, rounds
        self.measured: Target = target(self.device)
        self.recorder = self.started()

    def started(self) -> Recorder:
        recorder = self.measured.recorder()
        recorder.start()
        recorder.collect()
        recorder.serialize_kernels()
        return recorder

    def rows(self, case: Case) -> list[tuple[object, ...]]:
        """Return a row for each implementation that agrees with torch on this case; none if the recorder fails."""
        found: dict[str, Line] = {}
        errors: dict[str, float] = {}

        def prepare() -> None:
            tensors = OP.make_inputs(case, 0, self.device)
            for each in filter(lambda each: takes(each, case), self.lines):
                found[each.name] = bound(each, case, tensors)
            errors.update(compared(found, case))

        samples: dict[str, list[Sample]] = {}
        try:
            self.recorder.sample(SETUP, prepare, self.measured.evict)
            for turn in range(self.rounds):
                for name, line in found.items():
                    taken = samples.setdefault(name, [])
                    if turn >= FEWER and statistics.median(each.us for each in taken) > SLOW_US:
                        continue
                    self.recorder.sample(name, self.measured.evict, line.discarded)
                for sample in self.recorder.collect():
                    if not sample.us > 0:
                        raise RecorderError(f"a sample of {sample.name} has no time")
                    if sample.name != SETUP:
                        samples[sample.name].append(sample)
        except RecorderError as error:
            print(f"{case.label} is left out: {error}", flush=True)
            self.recorder.stop()
            self.recorder = self.started()
            return []
        kind = (case.option("layout", "nn"), case.dtype, case.precision)
        return [
            (*case.shape, *kind, name, f"{median(taken).us:.3f}", len(taken), f"{errors[name]:.2g}", kernels(taken))
            for name, taken in samples.items()
        ]


def median(samples: Sequence[Sample]) -> Sample:
    return sorted(samples, key=lambda each: each.us)[len(samples) // 2]


def kernels(samples: Sequence[Sample]) -> str:
    """Describe the median sample: name and time of each kernel, those of one name together."""
    spent: Counter[str] = Counter()
    for each in median(samples).activities or ():
        spent[each.name.partition("<")[0].partition("(")[0].removeprefix("void ")[:40]] += each.end - each.start
    return " + ".join(f"{name} {ns / 1000:.1f}" for name, ns in spent.items())


def compared(found: dict[str, Line], case: Case) -> dict[str, float]:
    """Return the difference to torch's result by implementation. Prints and removes those that refuse or are wrong."""
    expected, errors = None, {}
    for name, line in list(found.items()):
        try:
            line.call()
            result = line.implementation.adapter.to_torch(line.call()).float()
        except Exception as error:  # one failing implementation does not end the table
            print(
                f"{case.label} {name} is left out: {(str(error) or type(error).__name__).splitlines()[0]}", flush=True
            )
            del found[name]
            continue
        expected = result if expected is None else expected
        errors[name] = float((result - expected).norm() / (expected.norm() + 1e-30))
        if not errors[name] <= WRONG * (10 if "float8" in case.dtype else 1):
            print(f"WRONG {case.label} {name}: {errors[name]:.3g}", flush=True)
            del found[name]
    return errors


def build(cases: Sequence[Case], patterns: Sequence[str]) -> None:
    """Call the implementations once for each case: a later process finds the programs in the frameworks' caches.

    Choices of Triton's autotuners are not kept, since other processes disturb their times. Threads compile for JAX.
    """
    device, lines = prepared(patterns)
    for each in lines:
        for kernel in vars(each.load()).values():
            if hasattr(kernel, "remembers"):
                kernel.remembers = False

    def once(case: Case, of: Iterable[Implementation]) -> None:
        tensors = OP.make_inputs(case, 0, device)
        for each in filter(lambda each: takes(each, case), of):
            try:
                bound(each, case, tensors).call()
            except Exception as error:
                print(f"{case.label} {each.name}: {type(error).__name__}", flush=True)

    with ThreadPoolExecutor(COMPILING) as pool:
        of_jax = [pool.submit(once, case, [each for each in lines if each.framework == "jax"]) for case in cases]
        for case in cases:
            once(case, [each for each in lines if each.framework != "jax"])
        for future in of_jax:
            future.result()


def prepared(patterns: Sequence[str]) -> tuple[torch.device, list[Implementation]]:
    """Return the device and the implementations, after the frameworks have started."""
    where = resolve(None)
    for name in frameworks.names():
        frameworks.get(name).prepare(where)
    return torch_device(where), [each for each in implementations(patterns) if each.obstacle(where) is None]


def measure(cases: Sequence[Case], patterns: Sequence[str], path: Path, rounds: int, seconds: float) -> None:
    """Measure all cases, and write rows as they come."""
    begin = time.monotonic()
    device, lines = prepared(patterns)
    timer = Timer(lines, device, rounds)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(HEAD)
        for at, case in enumerate(cases):
            if time.monotonic() - begin > seconds:
                print(f"time is over: {len(cases) - at} cases from {case.label} on are left out", flush=True)
                break
            rows.writerows(timer.rows(case))
            file.flush()
    timer.recorder.stop()
    print(f"{path}: {time.monotonic() - begin:.1f} s", flush=True)


@dataclass(frozen=True)
class Timed:
    """The measured implementations of a case."""

    M: int
    N: int
    K: int
    kind: tuple[str, str, str]
    us: dict[str, float]
    kernels: dict[str, str]

    def ratio(self, line: str) -> float:
        return self.us[VENDOR] / self.us[line]

    @property
    def best(self) -> str:
        """Name of our fastest implementation."""
        return min((each for each in self.us if not is_vendor(each)), key=self.us.__getitem__)

    @property
    def best_vendor(self) -> str:
        """Name of the vendors' fastest implementation."""
        return min(filter(is_vendor, self.us), key=self.us.__getitem__)

    @property
    def best_ratio(self) -> float:
        """Speed of our fastest implementation relative to the vendors' fastest."""
        return self.us[self.best_vendor] / self.us[self.best]

    @property
    def text(self) -> str:
        layout, dtype, _ = self.kind
        return f"{self.M} x {self.N} x {self.K}" + (
            f" {dtype} {layout}" if (layout, dtype) != ("nn", "bfloat16") else ""
        )

    @property
    def intensity(self) -> float:
        return self.M * self.N * self.K / (self.M * self.K + self.K * self.N + self.M * self.N)

    @property
    def waves(self) -> float:
        return cdiv(self.M, 128) * cdiv(self.N, 256) / 132


def is_vendor(line: str) -> bool:
    return builtin.find("matmul", line).vendor is not None


def read(path: Path) -> list[Timed]:
    """Read a file that `measure` has written; keep cases in which the vendor and one of ours were timed."""
    found: dict[tuple[Any, ...], Timed] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            sizes, kind = (int(row["M"]), int(row["N"]), int(row["K"])), (row["layout"], row["dtype"], row["precision"])
            timed = found.setdefault((*sizes, *kind), Timed(*sizes, kind, {}, {}))
            timed.us[row["line"]], timed.kernels[row["line"]] = float(row["us"]), row["kernels"]
    return [each for each in found.values() if VENDOR in each.us and any(not is_vendor(line) for line in each.us)]


def tables(sets: dict[str, list[Timed]]) -> str:
    """Format as Markdown the mean and the worst ratio of each set and implementation, and the worst cases of one."""
    names = [line for line in LINES if any(line in each.us for timed in sets.values() for each in timed)]
    rows = []
    for title, timed in sets.items():
        ratios = [[each.ratio(line) for each in timed if line in each.us] for line in names]
        rows.append(
            [f"{title}: {len(timed)}", *map(mean_and_worst, ratios), mean_and_worst([t.best_ratio for t in timed])]
        )
    parts = [pipe_table(["shapes", *names, "our best, of the best vendor"], rows, right=set())]
    worst = [
        [line, ", ".join(f"{each.text}: {each.ratio(line):.3f}" for each in slowest(line, sets))]
        for line in names
        if not is_vendor(line)
    ]
    return "\n\n".join([*parts, pipe_table(["line", "worst, of cuBLAS"], worst, right=set())])


def slowest(line: str, sets: dict[str, list[Timed]]) -> list[Timed]:
    """Return the worst cases of an implementation."""
    found = [each for timed in sets.values() for each in timed if line in each.us]
    return sorted(found, key=lambda each: each.ratio(line))[:SHOWN]


def mean_and_worst(ratios: Sequence[float]) -> str:
    """Format the geometric mean, and the least ratio in parentheses; empty without ratios."""
    if not ratios:
        return ""
    return f"{math.exp(statistics.fmean(math.log(each) for each in ratios)):.3f} ({min(ratios):.3f})"


def plotted(sets: dict[str, list[Timed]]) -> dict[str, dict[str, list[Point]]]:
    """The points of the plot by implementation, and by dtype, precision and layout."""
    rows: dict[str, dict[str, list[Point]]] = {line: {} for line in LINES if not is_vendor(line)}
    for each in (each for timed in sets.values() for each in timed):
        layout, dtype, precision = each.kind
        kind = f"{dtype}, {layout}" if precision == "ieee" else f"{dtype} {precision}, {layout}"
        for line in rows.keys() & each.us.keys():
            rows[line].setdefault(kind, []).append(Point(each.intensity, each.waves, each.ratio(line)))
    return {line: kinds for line, kinds in rows.items() if kinds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    matmul_shapes.add_arguments(parser, draws=60)
    parser.add_argument("--every", type=int, default=1, help="take every Nth shape (1)")
    parser.add_argument("--impl", action="append", default=[], help="pattern of lines beside torch (all of the table)")
    parser.add_argument("--layout", action="append", default=[], help="nn, tn, nt, tt (the dtype's; --served: nt)")
    parser.add_argument("--dtype", action="append", default=[], help="bfloat16 and others (bfloat16)")
    parser.add_argument("--precision", help="tf32, promoted or fast (the dtype's first)")
    parser.add_argument("--build", metavar="I/N", help="only compile ahead, process I of N, from 0 on")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of a line ({ROUNDS})")
    parser.add_argument("--seconds", type=float, default=600, help="no new case is begun after this time (600)")
    parser.add_argument("--out", type=Path, default=Path("lines.csv"), help="CSV file to write (lines.csv)")
    parser.add_argument("--read", type=Path, nargs="+", help="tables of such files")
    parser.add_argument("--write", type=Path, help="write the tables of --read between the marks of this document")
    parser.add_argument("--plot", type=Path, help="PNG file to draw from the files of --read")
    given = parser.parse_args()
    if given.read:
        sets = {path.stem: read(path) for path in given.read}
        text = tables(sets)
        print(text)
        if given.plot:
            plot(plotted(sets), given.plot)
        if given.write:
            if given.plot:
                place = os.path.relpath(given.plot, given.write.parent)
                text = f"![Ratio over arithmetic intensity and over waves]({place})\n\n{text}"
            before, _, rest = given.write.read_text().partition(BEGIN)
            given.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
        return 0
    shapes = matmul_shapes.chosen(given)[:: given.every]
    cases = [
        OP.case(shape, dtype, given.precision, layout=layout)
        for dtype in given.dtype or ["bfloat16"]
        for layout in given.layout or ["nt" if given.served else None]
        for shape in shapes
    ]
    if given.build:
        first, processes = map(int, given.build.split("/"))
        build(cases[first::processes], given.impl or LINES)
        return 0
    measure(cases, given.impl or LINES, given.out, given.rounds, given.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
