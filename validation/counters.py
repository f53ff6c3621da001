"""Compares the counts of emulated kernels with those of Nsight Compute, on a machine with a GPU.

    python -m validation.counters                      # the kernels of validation/counting, then of the tree
    python -m validation.counters --seconds 60 --out results/nvidia-h200/proof

The kernels of `validation/counting/kernels.cu` have one pattern each, and are compared one by one. For an
implementation of the tree, the sums over the kernels of one call are compared, in the operation's largest case of a
plain run on a CPU. The emulated device has four multiprocessors, so an implementation that fills the device runs fewer
warps there.

Exit status: 0; 1 if nothing could be compared; 2 without ncu; 3 if this machine does not permit profiling.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cuda_ref.build import counting
from cuda_ref.build.programs import program
from suite import ops
from suite.core.files import write_atomically
from suite.core.text import one_line
from suite.hardware.device import Device, resolve
from suite.problem.case import Case
from suite.profiling import child, nsight
from suite.profiling.nsight import Kernel, NsightError
from suite.profiling.once import Once
from suite.results.render import pipe_table, plain
from validation.counting import metrics

SOURCE = Path(__file__).parent / "counting" / "kernels.cu"
LINES = (
    *(("vector_add", "cuda"), ("vector_add", "cuda/vectorized"), ("matrix_add", "cuda"), ("sigmoid", "cuda")),
    *(("matmul", "cuda"), ("matmul", "cuda/tiled"), ("matmul", "cuda/register_tiles"), ("softmax", "cuda")),
    *(("sum", "cuda"), ("sum", "cuda/tree"), ("sum", "cuda/atomics"), ("rms_norm", "cuda"), ("layer_norm", "cuda")),
)
"""Operations and implementations of the tree."""
ALIKE = 0.05
"""Counters agree if they differ by no more than this, relative to Nsight Compute's."""
HEADS = ("kernel", "counter", "emulated", "Nsight Compute", "ratio")


@dataclass(frozen=True)
class Row:
    """One counter of one kernel, by both."""

    kernel: str
    counter: str
    ours: float
    theirs: float

    @property
    def alike(self) -> bool:
        return abs(self.ours - self.theirs) <= ALIKE * self.theirs

    def cells(self) -> tuple[str, ...]:
        ratio = f"{self.ours / self.theirs:.3f}" if self.theirs else ""
        return self.kernel, self.counter, f"{self.ours:,.0f}", f"{self.theirs:,.0f}", ratio


Ours = Mapping[str, Mapping[str, Any]]
"""Counts by kernel."""


def counts_of_program() -> Ours:
    """The counts of the program's kernels, emulated."""
    built = program(SOURCE, count=True)
    with tempfile.TemporaryDirectory(prefix="counters-") as folder:
        path = Path(folder, "counts")
        subprocess.run([built], check=True, env={**os.environ, "CUDA_HOST_COUNTS": str(path)})
        return {each.kernel: vars(each) for each in counting.read(path, built)}


def counts_of_call(case: Case, name: str, timeout_s: float) -> dict[str, Any]:
    """The counts of one call of an implementation, emulated."""
    found = child.counts(Once(case, name, 0, resolve("cpu")), timeout_s)
    return {field.removeprefix("count_"): value for field, value in found.items()}


class Nsight:
    """Runs Nsight Compute. `formulas` are the counters that it can measure on this device."""

    def __init__(self, executable: str, device: Device) -> None:
        self.executable, self.device = executable, device
        self.formulas = metrics.formulas(metrics.known(executable))

    def kernels_of_program(self, timeout_s: float) -> Mapping[str, Sequence[Kernel]]:
        """The kernels of the program, by name."""
        with tempfile.TemporaryDirectory(prefix="counters-") as folder:
            built = Path(folder, "kernels")
            flags = ["-O3", "-std=c++17", "-lineinfo", "-arch=native"]
            subprocess.run(["nvcc", *flags, SOURCE, "-o", built], check=True, timeout=timeout_s)
            found = self._kernels(
                folder,
                lambda before: subprocess.run([*before, built], check=True, timeout=timeout_s, capture_output=True),
                whole=True,
            )
        return {metrics.base_name(kernel.name): [kernel] for kernel in found}

    def kernels_of_call(self, case: Case, name: str, timeout_s: float) -> Sequence[Kernel]:
        """The kernels of one call of an implementation."""
        once = Once(case, name, 0, self.device)
        with tempfile.TemporaryDirectory(prefix="counters-") as folder:
            return self._kernels(folder, lambda before: child.run(once, before, timeout_s), whole=False)

    def _kernels(self, folder: str, run: Callable[[list[str]], object], *, whole: bool) -> list[Kernel]:
        log = Path(folder, "ncu.csv")
        wanted = metrics.requested(self.formulas.values())
        before = nsight.command(self.executable, log, wanted, whole=whole)
        try:
            run([*before, "--print-metric-instances", "details"])
        except Exception:
            nsight.refuse(log.read_text(errors="replace") if log.exists() else "")
            raise
        return nsight.kernels(log.read_text(errors="replace"))

    def rows(self, kernel: str, ours: Mapping[str, Any], kernels: Sequence[Kernel]) -> list[Row]:
        """The counters in which either has a value."""
        found = []
        for name, formula in self.formulas.items():
            theirs, counted = metrics.value(kernels, formula), ours.get(name)
            if theirs is not None and counted is not None and (theirs or counted):
                found.append(Row(kernel, name, counted, theirs))
        return found


def largest(operation: str) -> Case:
    """The operation's largest case of a plain run on a CPU, in float32."""
    op = ops.get(operation)
    return max((case for case in op.default_cases("cpu") if case.dtype == "float32"), key=op.bytes)


def compare(executable: str, device: Device, seconds: float) -> tuple[list[Row], list[str]]:
    """The rows, and what could not be compared. Builds and runs go on side by side; ncu runs one after the other."""
    end = time.monotonic() + seconds
    theirs = Nsight(executable, device)
    cases = {f"{operation} {name}": (largest(operation), name) for operation, name in LINES}
    rows: list[Row] = []
    problems: list[str] = []

    def rest() -> float:
        return max(end - time.monotonic(), 1.0)

    with ThreadPoolExecutor(max_workers=8) as pool:
        own, measured = pool.submit(counts_of_program), pool.submit(lambda: theirs.kernels_of_program(rest()))
        lines = {
            title: (
                pool.submit(partial(_timely, counts_of_call, case, name, rest)),
                pool.submit(partial(_timely, theirs.kernels_of_call, case, name, rest)),
            )
            for title, (case, name) in cases.items()
        }
        try:
            counts, kernels = own.result(), measured.result()
            for name, of_kernel in counts.items():
                rows += theirs.rows(name, of_kernel, kernels[name])
        except (OSError, subprocess.SubprocessError, KeyError) as error:
            problems.append(f"{SOURCE.name}: {one_line(error)}")
        for title, (line, measured_line) in lines.items():
            try:
                rows += theirs.rows(title, line.result(), measured_line.result())
            except (child.OnceError, NsightError) as error:
                if isinstance(error, NsightError) and error.refused:
                    raise
                problems.append(f"{title}: {one_line(error)}")
    return rows, problems


def _timely(run: Callable[[Case, str, float], Any], case: Case, name: str, rest: Callable[[], float]) -> Any:
    return run(case, name, rest())


def report(rows: Sequence[Row], problems: Sequence[str], device: Device) -> str:
    """The table in Markdown, with a summary."""
    kernels = dict.fromkeys(row.kernel for row in rows)
    alike = sum(row.alike for row in rows)
    lines = [
        f"# Counts of emulated kernels and of Nsight Compute: {device.name}",
        "",
        f"{len(kernels)} kernels and lines; {alike} of {len(rows)} counters within {100 * ALIKE:.0f}%.",
        "",
        pipe_table(list(HEADS), [[*map(plain, row.cells())] for row in rows], set(HEADS[2:])),
        *([""] if problems else []),
        *(f"- not compared: {each}" for each in problems),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=110.0, help="time for everything")
    parser.add_argument("--out", type=Path, help="folder of counters.md; default results/<device>/proof")
    options = parser.parse_args(arguments)
    executable = nsight.ncu()
    if executable is None:
        print(f"ncu (Nsight Compute) is not on PATH, nor at {', '.join(nsight.NCU_PATHS)}", file=sys.stderr)
        return 2
    device = resolve("cuda:0")
    try:
        rows, problems = compare(executable, device, options.seconds)
    except NsightError as error:
        print(error, file=sys.stderr)
        return 3 if error.refused else 1
    text = report(rows, problems, device)
    print(text)
    if rows:
        write_atomically((options.out or device.results_folder / "proof") / "counters.md", text)
    return 0 if rows else 1


if __name__ == "__main__":
    raise SystemExit(main())
