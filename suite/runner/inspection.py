"""Profiles one call of each row with Nsight Compute (`--profile`), counts one (`--count`), writes the code (`--dump`).

All help to find out why a kernel is slow. Each call is made in a process of its own (`suite/profiling`), after the
rows of its case are timed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from suite import ops
from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.core.text import one_line
from suite.hardware.device import resolve
from suite.implementations.implementation import Implementation
from suite.problem.case import Case
from suite.profiling import child, nsight
from suite.profiling.child import OnceError
from suite.profiling.nsight import NsightError
from suite.profiling.once import Once
from suite.results.replacing import CODE
from suite.results.row import Attempt, Bound, Mode, Row, Status
from suite.runner.device_run import CaseProgress
from suite.runner.options import Options
from suite.runner.plan import Job

KINDS = ("ptx", "sass", "ttir", "ttgir", "hlo")
PROFILERS = ("ncu",)
NO_CODE = NO_COUNTS = "none: "
MIN_TIMEOUT_S = 300.0
"""Shortest time limit of a profiled call: Nsight Compute repeats each kernel dozens of times."""


def check(profiler: str, options: Options, *, publish: bool) -> None:
    """Raise `UsageError` for values of `--profile` and `--dump` that are unknown or cannot be used on this machine."""
    if profiler and profiler not in PROFILERS:
        raise UsageError(f"--profile: {unknown(profiler, PROFILERS)}")
    for kind in options.dumped:
        if kind not in KINDS:
            raise UsageError(f"--dump: {unknown(kind, KINDS)}")
    if options.dumped and publish:
        raise UsageError("--dump writes code to the run's folder, --publish only tables to commit; give one of the two")
    if not profiler:
        return
    if not options.timed:
        raise UsageError("--profile ncu: profiles what is timed, and --no-time times nothing; give one of the two")
    if options.device.type != "cuda":
        raise UsageError(f"--profile ncu: needs an NVIDIA GPU; the device is a CPU ({options.device.name})")
    if nsight.ncu() is None:
        raise UsageError(
            f"--profile ncu: ncu (Nsight Compute) is not on PATH, nor at {', '.join(nsight.NCU_PATHS)}: "
            f"{nsight.INSTALL_HINT}"
        )


class Inspection:
    """Profiles the timed rows of the run's device, and writes the code of the rows that were called."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._ncu = nsight.ncu() if options.profiled else None
        self._refused = ""
        """The reason why Nsight Compute can profile no row on this machine; empty if it can."""

    def inspect(self, job: Job, case: Case, rows: Sequence[Row], progress: CaseProgress) -> None:
        """Set the profile and code columns of `rows`, all of one case. Rows that have them already are not changed."""
        implementations = {each.name: each for each in job.implementations}
        for row in rows:
            if row.device != str(self.options.device):
                continue
            implementation = implementations[row.implementation]
            if self.options.counted and row.status in (Status.OK, Status.WRONG) and not row.counted:
                progress.step(0, f"counting {row.implementation}")
                self._count(case, implementation, row)
                progress.store([row])
            if self.options.dumped and row.status in (Status.OK, Status.WRONG) and not row.code:
                progress.step(0, f"writing the code of {row.implementation}")
                row.code = self._dump(case, implementation, row)
                progress.store([row])
            if self._ncu is not None and row.timed is Attempt.DONE and row.bound_by is Bound.UNKNOWN:
                progress.step(0, f"profiling {row.implementation}")
                self._profile(self._ncu, case, implementation, row)
                progress.store([row])

    def _count(self, case: Case, implementation: Implementation, row: Row) -> None:
        """Set the columns of the counts. They are taken on a CPU: for a row of a GPU in a smaller case."""
        if not implementation.adapter.can_count:
            row.counted = f"{NO_COUNTS}{implementation.framework} runs the kernels of a library or of a compiler"
            return
        small = case if self.options.device.type == "cpu" else _on_a_cpu(case)
        once = Once(small, implementation.reference, self.options.seed, resolve("cpu"))
        try:
            row.fill(child.counts(once, self._timeout_s) | {"counted": f"{small.label} {small.dtype}"})
        except OnceError as error:
            row.counted = f"{NO_COUNTS}{one_line(error)}"

    def _profile(self, executable: str, case: Case, implementation: Implementation, row: Row) -> None:
        once = Once(case, implementation.reference, self.options.seed, self.options.device)
        try:
            if self._refused:
                raise NsightError(self._refused)
            row.fill(child.profile(once, executable, cold=row.cache == "cold", timeout_s=self._timeout_s))
        except NsightError as error:
            self._refused = str(error) if error.refused else self._refused
            problem = str(error)
        except OnceError as error:
            problem = str(error)
        else:
            return
        text = f"not profiled: {one_line(problem)}"
        row.reason = row.reason if text in row.reason else "; ".join(filter(None, (row.reason, text)))

    def _dump(self, case: Case, implementation: Implementation, row: Row) -> str:
        """Write the code of a row's kernels. Returns the value of the column `code`."""
        adapter = implementation.adapter
        if row.execution is not Mode.NATIVE:
            return f"{NO_CODE}{row.execution}, without a GPU"
        if not adapter.code_kinds:
            return f"{NO_CODE}{implementation.framework} runs the kernels of a library"
        kinds = tuple(kind for kind in self.options.dumped if kind in adapter.code_kinds)
        if not kinds:
            return f"{NO_CODE}{implementation.framework} has {', '.join(adapter.code_kinds)}"
        below = f"{_as_file_name(row.implementation)}/{_as_file_name('-'.join(row.case_key))}"
        folder = self.options.code_folder / below
        once = Once(
            case, implementation.reference, self.options.seed, self.options.device, kinds, str(folder.absolute())
        )
        try:
            names = child.code(once, self._timeout_s)
        except OnceError as error:
            return f"{NO_CODE}{one_line(error)}"
        return f"{CODE}/{below}: {', '.join(names)}" if names else f"{NO_CODE}it has compiled nothing"

    @property
    def _timeout_s(self) -> float:
        return max(self.options.timeout_s, MIN_TIMEOUT_S)


def _on_a_cpu(case: Case) -> Case:
    """The largest case of a plain run on a CPU with the same dtype and options; with other options if there is none."""
    op = ops.operation(case)
    cases = [each for each in op.default_cases("cpu") if each.dtype == case.dtype] or list(op.default_cases("cpu"))
    alike = [each for each in cases if op.arguments(each) == op.arguments(case)]
    return max(alike or cases, key=op.bytes)


def summary(rows: Sequence[Row]) -> str:
    """A sentence on the code that `--dump` wrote, by framework, and on the rows that have none."""
    parts = []
    for name in dict.fromkeys(row.implementation.partition("/")[0] for row in rows if row.code):
        texts = [row.code for row in rows if row.implementation.partition("/")[0] == name and row.code]
        files = [file for text in texts if not text.startswith(NO_CODE) for file in text.split(", ")]
        if kinds := [kind for kind in KINDS if any(file.endswith(f".{kind}") for file in files)]:
            parts.append(f"{name}: {', '.join(kinds)}")
        parts += dict.fromkeys(f"{name}: {text}" for text in texts if text.startswith(NO_CODE))
    return "; ".join(parts)


def _as_file_name(text: str) -> str:
    """A name as a file name: `cuda/wgmma` as `cuda-wgmma`."""
    return re.sub(r"[^\w=.,+-]+", "-", text)
