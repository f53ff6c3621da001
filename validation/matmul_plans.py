"""Times the plans of cuda/auto over shapes, beside the vendor, and compares the model's choice with the best one.

python -m validation.matmul_plans --draws 100 --seed 7 --out plans.csv
python -m validation.matmul_plans --shapes shapes.csv --out plans.csv
python -m validation.matmul_plans --draws 60 --seed 7 --precision tf32 --out plans_tf32.csv
python -m validation.matmul_plans --read plans.csv         # the table of a file, by the present models
python -m validation.matmul_plans --read plans.csv --summary FOLDER    # the same, from a short file that is kept
python -m validation.matmul_plans --check                  # all plans against float64 instead
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path

import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref.build import compiler
from cuda_ref.matmul import _model_tf32_float8 as model_tf32_float8
from cuda_ref.matmul import _plan as _matmul_plan
from cuda_ref.matmul import _tiles as _matmul_tiles
from cuda_ref.matmul import auto
from cuda_ref.matmul._rates import rates_of
from suite.timing.intervals import RecorderError
from suite.timing.recorder import Recorder
from suite.timing.target import target
from torch_impls.matmul import matmul as vendor
from validation import matmul_shapes
from validation.matmul_plan_tables import DTYPES, FACTS, AnyProblem, name, plotted, predicted_us, read, summarize, table
from validation.matmul_plot import plot
from validation.matmul_shapes import Shape
from validation.matmul_short_list import estimated_us, is_listed

ROUNDS = 4
SLOW_PLAN_RATIO = 1.5
"""A plan that takes more than this multiple of the best time is timed only once."""
BEGIN, END = "<!-- plans:begin -->", "<!-- plans:end -->"
SETUP = "inputs"
SOME_WRONG = 3
"""Exit status of --check if a plan is wrong. Python's own errors have 1."""
MAX_PREDICTED_RATIO, MAX_PREDICTED_EXTRA_US, MAX_PLANS = 2, 5.0, 60
"""The MAX_PLANS plans of a shape with the shortest predicted times are timed. Those above MAX_PREDICTED_RATIO times the
predicted time of the first one plus MAX_PREDICTED_EXTRA_US are left out."""
DEVICE = ("device", "clock", "dram")
"""Columns for the device's rates."""
SOURCES = {
    "ieee": ("wgmma", "_wgmma16", "_fitted_bfloat16", "mma", "stream", "skinny", "_short", "_narrow"),
    "tf32": ("_wgmma32", "_few32"),
    "fast": ("_wgmma8", "_skinny8", "_short8"),
    "promoted": ("_wgmma8", "_skinny8", "_short8"),
}
"""The .cu files of the plans of a precision."""
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
"""Shapes for kernels that do not compute those of CHECKED."""


def operands(shape: Shape, layout: str, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Draw normal random a and b. A letter t in the layout stores that operand transposed."""
    M, N, K = shape
    source = torch.Generator("cuda").manual_seed(seed)

    def matrix(rows: int, columns: int, letter: str) -> Tensor:
        size = (columns, rows) if letter == "t" else (rows, columns)
        drawn_as = dtype if dtype.itemsize > 1 else torch.float16
        x = torch.randn(size, device="cuda", dtype=drawn_as, generator=source).to(dtype)
        return x.t() if letter == "t" else x

    return matrix(M, K, layout[0]), matrix(K, N, layout[1])


def calls(
    a: Tensor, b: Tensor, kernels: Sequence[str], all_plans: bool, precision: str = "ieee"
) -> dict[str, Callable[[], Tensor]]:
    """Return the calls by name: the vendor, and the model's choice or all plans to time and that of the short list."""
    scales = [torch.ones((), device=a.device) for _ in "ab"] if a.element_size() == 1 else [None, None]
    found: dict[str, Callable[[], Tensor]] = {"torch": partial(vendor, a, b, *scales, precision=precision)}
    rates = rates_of(a.device if a.is_cuda else None)
    x: AnyProblem
    if precision == "ieee":
        x = _matmul_plan.problem_of(a, b)
        plans = [each for each in _matmul_tiles.candidates(x) if each.kernel in kernels]
    else:
        x = model_tf32_float8.problem_of(a, b, precision)
        plans = list(model_tf32_float8.candidates(x))
    times = {each: predicted_us(each, x, rates) for each in plans}
    chosen = sorted(times, key=times.__getitem__)
    if all_plans:
        most_us = MAX_PREDICTED_RATIO * times[chosen[0]] + MAX_PREDICTED_EXTRA_US
        simple = min(filter(is_listed, plans), key=lambda each: estimated_us(each, x, rates), default=chosen[0])
        chosen = [*(each for each in chosen[:MAX_PLANS] if times[each] < most_us), simple]
    for each in chosen if all_plans else chosen[:1]:
        found[name(each)] = partial(auto.run, each, a, b, precision, *scales)
    return found


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
                        found, again = (auto.run(plan, a, b) for _ in range(2))
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
    """Times the calls of shapes with a cold cache, in turns.

    The recorder needs all work on the device to belong to a sample: inputs are drawn, and results compared with the
    vendor's, in the preparation of a sample that is not used.
    """

    def __init__(self, kernels: Sequence[str], layout: str, precision: str = "ieee") -> None:
        self.kernels, self.layout, self.precision = kernels, layout, precision
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
            a, b = operands(shape, self.layout, DTYPES[self.precision], 1)
            x = _matmul_plan.problem_of(a, b)
            facts.extend((self.layout, self.precision, *(int(getattr(x, each)) for each in FACTS)))
            facts.extend(rates_of(a.device if a.is_cuda else None))
            found.update(calls(a, b, self.kernels, all_plans, self.precision))
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
                remaining = [each for each in found if each == "torch" or medians[each] <= SLOW_PLAN_RATIO * fastest]
        except RecorderError as error:
            print(f"{shape} is left out: {error}", flush=True)
            self.recorder.stop()
            self.recorder = self.started()
            return []
        return [
            (*shape, *facts, each, f"{us:.3f}", len(times[each]), f"{errors[each]:.2g}") for each, us in medians.items()
        ]


def compared(found: dict[str, Callable[[], Tensor]]) -> dict[str, float]:
    """Return the relative norms of the differences to the vendor's result. Removes calls that fail."""
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
        rows.writerow((*"MNK", "layout", "precision", *FACTS, *DEVICE, "plan", "us", "samples", "error"))
        for all_plans in (False, True):
            for shape in shapes:
                if time.monotonic() - begin > seconds:
                    print(f"time is over: {'plans of' if all_plans else ''} shapes from {shape} on are left out")
                    break
                rows.writerows(timer.times(shape, all_plans))
                file.flush()
    timer.recorder.stop()


def build_all(precision: str) -> None:
    """Build the kernels of a precision in parallel, each in a process."""
    target = compiler.arch_of(*torch.cuda.get_device_capability())
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(build.library, [f"matmul/{each}" for each in SOURCES[precision]], repeat(target)))


def _discarding(call: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        call()

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    matmul_shapes.add_arguments(parser, draws=50)
    parser.add_argument(
        "--layout", choices=("nn", "tn", "nt", "tt"), help="t: stored transposed (nn; float8, --served: nt)"
    )
    parser.add_argument("--precision", default="ieee", choices=tuple(SOURCES), help="ieee: bfloat16 (ieee)")
    parser.add_argument("--kernels", default=",".join(_matmul_tiles.KERNELS), help="kernels of 16 bits to time (all)")
    parser.add_argument("--seconds", type=float, default=600, help="no new shape begins after this time (600)")
    parser.add_argument("--out", type=Path, default=Path("plans.csv"), help="CSV file to write (plans.csv)")
    parser.add_argument("--check", action="store_true", help="judge the plans of --kernels against float64 instead")
    parser.add_argument("--read", type=Path, nargs="+", help="print tables of such files, by the present models")
    parser.add_argument("--write", type=Path, help="write the tables of --read between the marks of this document")
    parser.add_argument("--summary", type=Path, help="folder for short files that make the same tables (16 bits)")
    parser.add_argument("--plot", type=Path, help="PNG file to draw from the files of --read")
    given = parser.parse_args()
    if given.read:
        sets = {path.stem: read(path) for path in given.read}
        if given.summary:
            for title, timed in sets.items():
                summarize(timed, given.summary / f"{title}.csv")
        text = table(sets)
        if given.plot:
            plot(plotted(sets), given.plot)
        print(text)
        if given.write:
            before, _, rest = given.write.read_text().partition(BEGIN)
            given.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
        return 0
    kernels = given.kernels.split(",")
    if given.check:
        if given.precision != "ieee":
            parser.error(f"--check covers the plans of 16 bits; got --precision {given.precision}")
        return SOME_WRONG if sum(check(kernel) for kernel in kernels) > 0 else 0
    shapes = matmul_shapes.chosen(given)
    float8 = DTYPES[given.precision].itemsize == 1
    if float8:  # cuBLAS takes multiples of 16 alone
        shapes = [(-(-M // 16) * 16, -(-N // 16) * 16, -(-K // 16) * 16) for M, N, K in shapes]
    layout = given.layout or ("nt" if float8 or given.served else "nn")
    build_all(given.precision)
    measure(shapes, given.out, Timer(kernels, layout, given.precision), given.seconds)
    print(table({given.out.stem: read(given.out)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
