"""Times every plan of cuda/wgmma over shapes, beside the vendor, and compares the model's choice with the best one.

python -m validation.matmul_plans --draws 100 --seed 7 --out plans.csv
python -m validation.matmul_plans --shapes shapes.csv --out plans.csv
python -m validation.matmul_plans --check        # all plans against float64 instead
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref.matmul import _plan as _matmul_plan
from cuda_ref.matmul import _tiles as _matmul_tiles
from cuda_ref.matmul import _times as _matmul_times
from cuda_ref.matmul import wgmma as matmul_wgmma
from cuda_ref.matmul._tiles import Plan, Problem
from suite.core.integers import cdiv
from suite.timing.intervals import RecorderError
from suite.timing.recorder import Recorder
from suite.timing.target import target
from torch_impls.matmul import matmul as vendor

Shape = tuple[int, int, int]
LONG_K, SMALL_OUTPUT = 131072, 2**16
"""Largest K that is drawn, for outputs of at most SMALL_OUTPUT elements."""
MOST_PRODUCTS = 2**40
"""Largest M N K of a drawn shape. Larger ones take most of the time and add little information."""
ROUNDS = 4
HOPELESS = 1.5
"""Ratio to the best plan's time above which a plan is timed once."""
FACTS = Problem._fields[3:]
"""Facts that the choice depends on besides the sizes; columns of a file."""
BEGIN, END = "<!-- table:begin -->", "<!-- table:end -->"
SETUP = "inputs"
SOME_WRONG = 3
"""Exit status of --check if results are wrong. 1 is that of Python's own errors."""
WRONG = 0.01
"""Relative norm of the difference to the vendor's result that no rounding causes."""
ABSURD = 4
"""A plan is not timed if its predicted time exceeds the best one's by this factor and 10 us."""
CHECKED: tuple[Shape, ...] = (
    (1, 1, 1),
    (5, 700, 530),
    (333, 16, 1031),
    (70, 130, 200),
    (129, 257, 1031),
    (264, 392, 520),
    (300, 513, 4100),
    (2055, 1800, 520),
)
CHECKED_BY_KERNEL: dict[str, tuple[Shape, ...]] = {
    "fitted": (
        (264, 392, 520), (2055, 1800, 520), (48, 1000, 4744), (304, 712, 1031), (16, 64, 64), (1, 8, 1),
        (700, 1144, 2096), (5, 64, 700), (130, 8, 8192),
    ),
    "skinny": ((1, 8, 8), (16, 1000, 4096), (17, 136, 72), (31, 4104, 264), (32, 520, 1031), (24, 56, 3000)),
    "narrow": (
        (5000, 1, 1), (30001, 20, 72), (9000, 3, 256), (2500, 116, 116), (700, 403, 10), (4003, 8, 1031),
        (8371, 40, 26), (12544, 116, 116), (60800, 3, 256), (100, 5, 7), (8, 1, 1), (20000, 128, 128), (8344, 8, 1040),
    ),
}  # fmt: skip
"""Shapes to check instead, for kernels that do not compute the shapes of CHECKED."""


def drawn(count: int, seed: int) -> list[Shape]:
    """Draw M, N and K log-uniform from 1 to 16384, K to 131072 for small outputs; half with multiples of 8."""
    source = random.Random(seed)
    shapes: list[Shape] = []
    while len(shapes) < count:
        sizes: list[int] = []
        for _ in range(3):
            most = LONG_K if len(sizes) == 2 and math.prod(sizes) <= SMALL_OUTPUT else 16384
            sizes.append(round(math.exp(source.uniform(0, math.log(most)))))
        if source.random() < 0.5:
            sizes = [cdiv(size, 8) * 8 for size in sizes]
        if math.prod(sizes) <= MOST_PRODUCTS:
            shapes.append((sizes[0], sizes[1], sizes[2]))
    return shapes


def listed(path: Path) -> list[Shape]:
    """Read the columns M, N and K of a CSV file."""
    with path.open(newline="") as file:
        return [(int(row["M"]), int(row["N"]), int(row["K"])) for row in csv.DictReader(file)]


def operands(shape: Shape, layout: str, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Draw normal random a and b. A letter t in the layout stores that operand transposed."""
    M, N, K = shape
    source = torch.Generator("cuda").manual_seed(seed)

    def matrix(rows: int, columns: int, letter: str) -> Tensor:
        size = (columns, rows) if letter == "t" else (rows, columns)
        x = torch.randn(size, device="cuda", dtype=dtype, generator=source)
        return x.t() if letter == "t" else x

    return matrix(M, K, layout[0]), matrix(K, N, layout[1])


def calls(a: Tensor, b: Tensor, kernels: Sequence[str], all_plans: bool) -> dict[str, Callable[[], Tensor]]:
    """Return the vendor's call and the model's choice, or every plan that is not absurd, by name."""
    x = _matmul_plan.problem_of(a, b)
    found: dict[str, Callable[[], Tensor]] = {"torch": partial(vendor, a, b)}
    plans = [each for each in _matmul_tiles.candidates(x) if each.kernel in kernels]
    least = min(_matmul_times.predicted_us(each, x) for each in plans)
    for each in plans:
        us = _matmul_times.predicted_us(each, x)
        if us == least or (all_plans and us < ABSURD * least + 10):
            found[name(each)] = partial(matmul_wgmma.run, each, a, b)
    return found


def plan(name: str) -> Plan:
    kernel, tile, parts = name.split("/")
    return Plan(kernel, int(tile), int(parts))


def name(plan: Plan) -> str:
    return f"{plan.kernel}/{plan.tile}/{plan.parts}"


def check(kernel: str) -> int:
    """Judge all plans of a kernel in all layouts, called twice; print and count the wrong ones."""
    wrong = 0
    for dtype in (torch.bfloat16, torch.float16):
        for shape in CHECKED_BY_KERNEL.get(kernel, CHECKED):
            for layout in ("nn", "tn", "nt", "tt") if dtype == torch.bfloat16 else ("nn",):
                a, b = operands(shape, layout, dtype, 1)
                truth = a.double() @ b.double()
                spread = (a.double().square() @ b.double().square()).sqrt()
                bound = truth.abs() * 2.0 ** (-8 if dtype == torch.bfloat16 else -11) * 1.01 + spread * 1e-5 + 1e-7
                for plan in _matmul_tiles.candidates(_matmul_plan.problem_of(a, b)):
                    if plan.kernel != kernel:
                        continue
                    try:
                        found, again = (matmul_wgmma.run(plan, a, b) for _ in range(2))
                        error = ((found.double() - truth).abs() / bound).max().item()
                    except build.CudaError as refused:
                        print(f"{shape} {name(plan)}: {refused}", flush=True)
                        error = math.inf
                    if not error < 1 or not torch.equal(found, again):
                        wrong += 1
                        print(f"WRONG {dtype} {shape} {layout} {name(plan)}: error / bound {error:.3g}", flush=True)
    print(f"{kernel}: {wrong} wrong", flush=True)
    return wrong


class Timer:
    """Times the calls of shapes in turns, with a cold cache.

    All work on the device belongs to a sample: a sample whose time is not used draws the inputs in its preparation, and
    compares the results with the vendor's.
    """

    def __init__(self, kernels: Sequence[str], layout: str) -> None:
        self.kernels, self.layout = kernels, layout
        self.device = target(torch.device("cuda"))
        self.recorder = self.started()

    def started(self) -> Recorder:
        recorder = self.device.recorder()
        recorder.start()
        recorder.collect()
        recorder.serialize_kernels()
        return recorder

    def times(self, shape: Shape, all_plans: bool) -> list[tuple[object, ...]]:
        """Return a row for the vendor and for the model's choice, or for all plans; none if the recorder fails."""
        found: dict[str, Callable[[], Tensor]] = {}
        errors: dict[str, float] = {}
        facts: list[object] = []

        def prepare() -> None:
            a, b = operands(shape, self.layout, torch.bfloat16, 1)
            x = _matmul_plan.problem_of(a, b)
            facts.extend((self.layout, *(int(getattr(x, each)) for each in FACTS)))
            found.update(calls(a, b, self.kernels, all_plans))
            errors.update(compared(found))

        times: dict[str, list[float]] = {}
        try:
            self.recorder.sample(SETUP, prepare, self.device.evict)
            remaining = list(found)
            for _ in range(ROUNDS if all_plans else 2 * ROUNDS):
                for each in remaining:
                    self.recorder.sample(each, self.device.evict, _discarding(found[each]))
                for sample in self.recorder.collect():
                    if not sample.us > 0:
                        raise RecorderError(f"a sample of {sample.name} has no time")
                    if sample.name != SETUP:
                        times.setdefault(sample.name, []).append(sample.us)
                medians = {each: statistics.median(values) for each, values in times.items()}
                fastest = min(us for each, us in medians.items() if each != "torch")
                remaining = [each for each in found if each == "torch" or medians[each] <= HOPELESS * fastest]
        except RecorderError as error:
            print(f"{shape} is left out: {error}", flush=True)
            self.recorder.stop()
            self.recorder = self.started()
            return []
        return [
            (*shape, *facts, each, f"{us:.3f}", len(times[each]), f"{errors[each]:.2g}") for each, us in medians.items()
        ]


def compared(found: dict[str, Callable[[], Tensor]]) -> dict[str, float]:
    """Return the relative norms of the differences to the vendor's result. Calls that fail to build are removed."""
    expected = found["torch"]().float()
    errors = {}
    for each, call in list(found.items()):
        try:
            errors[each] = float((call().float() - expected).norm() / (expected.norm() + 1e-30))
        except (build.BuildError, build.CudaError) as error:
            print(f"{each} is left out: {str(error).splitlines()[0]}", flush=True)
            del found[each]
    return errors


def measure(shapes: Sequence[Shape], path: Path, timer: Timer, seconds: float) -> None:
    """Time first the vendor and the model's choice for all shapes, then all plans; write rows as they come."""
    begin = time.monotonic()
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow((*"MNK", "layout", *FACTS, "plan", "us", "samples", "error"))
        for all_plans in (False, True):
            for shape in shapes:
                if time.monotonic() - begin > seconds:
                    print(f"time is over: {'plans of' if all_plans else ''} shapes from {shape} on are left out")
                    break
                rows.writerows(timer.times(shape, all_plans))
                file.flush()
    timer.recorder.stop()


def _discarding(call: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        call()

    return run


@dataclass(frozen=True)
class Timed:
    """The measured plans of a shape."""

    x: Problem
    vendor_us: float
    plans: dict[str, float]

    @property
    def chosen(self) -> str:
        """The plan that the model chooses."""
        return min(self.plans, key=lambda each: _matmul_times.predicted_us(plan(each), self.x))

    @property
    def best(self) -> str:
        return min(self.plans, key=self.plans.__getitem__)

    def of_vendor(self, name: str) -> float:
        return self.vendor_us / self.plans[name]

    @property
    def text(self) -> str:
        return f"{self.x.M} x {self.x.N} x {self.x.K}"


def read(path: Path) -> list[Timed]:
    """Read the shapes of a file that `measure` has written. Prints results that are wrong."""
    found: dict[Problem, dict[str, float]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            x = Problem(int(row["M"]), int(row["N"]), int(row["K"]), **{each: int(row[each]) for each in FACTS})
            if float(row["error"]) > WRONG:
                print(f"WRONG {x.M} x {x.N} x {x.K} {row['plan']}: {row['error']}")
            found.setdefault(x, {})[row["plan"]] = float(row["us"])
    return [Timed(x, plans.pop("torch"), plans) for x, plans in found.items() if {*plans} - {"torch"}]


def table(sets: dict[str, list[Timed]]) -> str:
    """Format as Markdown the distribution of ratios of each set, the same by kind of shape, and the worst shapes."""
    lines = [
        "| shapes | ratio | number | geometric mean | worst | quartiles |",
        "|---|---|---:|---:|---:|---|",
    ]
    for title, timed in sets.items():
        complete = [each for each in timed if len(each.plans) > 1]
        ratios = {
            "chosen plan, of cuBLAS": [each.of_vendor(each.chosen) for each in timed],
            "best plan, of cuBLAS": [each.of_vendor(each.best) for each in complete],
            "chosen plan, of the best": [each.plans[each.best] / each.plans[each.chosen] for each in complete],
        }
        lines += [f"| {title} | {what} | {_distribution(values)} |" for what, values in ratios.items() if values]
    lines += ["", f"| chosen plan, of cuBLAS | {' | '.join(sets)} |", f"|---|{'---|' * len(sets)}"]
    for kind in ("at most 16 rows or columns", "others, copied for TMA", "others"):
        values = [[each.of_vendor(each.chosen) for each in timed if kind_of(each.x) == kind] for timed in sets.values()]
        lines.append(f"| {kind} | {' | '.join(f'{_mean(v):.3f} ({len(v)})' if v else '' for v in values)} |")
    lines += ["", "| the worst: M x N x K | cuBLAS, us | chosen | us | best | us | of cuBLAS |"]
    lines += ["|---|---:|---|---:|---|---:|---:|"]
    for each in sorted((t for timed in sets.values() for t in timed), key=lambda t: t.of_vendor(t.chosen))[:10]:
        chosen, best = (f"{name} | {each.plans[name]:.1f}" for name in (each.chosen, each.best))
        ratio = each.of_vendor(each.chosen)
        lines.append(f"| {each.text} | {each.vendor_us:.1f} | {chosen} | {best} | {ratio:.3f} |")
    return "\n".join(lines)


def plot(sets: dict[str, list[Timed]], path: Path) -> None:
    """Plot the ratio of the chosen plan to the vendor over arithmetic intensity and over waves of large tiles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, (label, place) in zip(
        figure.subplots(1, 2, sharey=True),
        {"arithmetic intensity, FLOP per byte": intensity, "waves of tiles of 128 x 256": waves}.items(),
        strict=True,
    ):
        for title, timed in sets.items():
            points = [(place(each.x), each.of_vendor(each.chosen)) for each in timed]
            axes.scatter(*zip(*points, strict=True), s=14, alpha=0.7, label=title)
        axes.axhline(1, color="gray", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=label)
        axes.minorticks_off()
        axes.set_yticks([0.25, 0.5, 0.7, 1, 1.4, 2, 4], labels=["0.25", "0.5", "0.7", "1", "1.4", "2", "4"])
    figure.axes[0].set_ylabel("time of cuBLAS / time of cuda/wgmma")
    figure.axes[0].legend()
    figure.savefig(path, dpi=120, metadata={"Software": None})


def intensity(x: Problem) -> float:
    return x.M * x.N * x.K / (x.M * x.K + x.K * x.N + x.M * x.N)


def waves(x: Problem) -> float:
    return cdiv(x.M, 128) * cdiv(x.N, 256) / x.multiprocessors


def kind_of(x: Problem) -> str:
    if min(x.M, x.N) <= _matmul_tiles.STREAM_FEW:
        return "at most 16 rows or columns"
    return "others, copied for TMA" if x.a_copied or x.b_copied else "others"


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(each) for each in ratios))


def _distribution(ratios: Sequence[float]) -> str:
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    shown = ", ".join(f"{each:.3f}" for each in quartiles)
    return f"{len(ratios)} | {_mean(ratios):.3f} | {min(ratios):.3f} | {shown}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=Path, help="CSV file with columns M, N and K")
    parser.add_argument("--draws", type=int, default=50, help="random shapes, without --shapes (50)")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes (1)")
    parser.add_argument("--layout", default="nn", choices=("nn", "tn", "nt", "tt"))
    parser.add_argument("--kernels", default=",".join(_matmul_tiles.KERNELS), help="whose plans are timed (all)")
    parser.add_argument("--seconds", type=float, default=600, help="no new shape is begun after this time (600)")
    parser.add_argument("--out", type=Path, default=Path("plans.csv"), help="CSV file to write (plans.csv)")
    parser.add_argument("--check", action="store_true", help="judge the plans of --kernels against float64 instead")
    parser.add_argument("--read", type=Path, nargs="+", help="tables of such files, with the present model's choice")
    parser.add_argument("--write", type=Path, help="write the tables of --read between the marks of this document")
    parser.add_argument("--plot", type=Path, help="PNG file to draw from the files of --read")
    given = parser.parse_args()
    if given.read:
        sets = {path.stem: read(path) for path in given.read}
        text = table(sets)
        if given.plot:
            plot(sets, given.plot)
        print(text)
        if given.write:
            before, _, rest = given.write.read_text().partition(BEGIN)
            given.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
        return 0
    kernels = given.kernels.split(",")
    if given.check:
        return SOME_WRONG if sum(check(kernel) for kernel in kernels) > 0 else 0
    shapes = listed(given.shapes) if given.shapes else drawn(given.draws, given.seed)
    measure(shapes, given.out, Timer(kernels, given.layout), given.seconds)
    print(table({given.out.stem: read(given.out)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
