"""The suite for Python: `compare` runs implementations of the tree and files, `check` and `time` a function.

`report` renders the results of `compare`.

    import kernel_suite as suite

    frame = suite.compare("matmul", shapes=[(512, 512, 512)], implementations=["triton*", "torch"], dtypes=["bfloat16"])
    found = suite.check(my_matmul, "matmul", (257, 129, 100), dtype="float16")
    timing = suite.time(my_matmul, "matmul", (4096, 4096, 4096), dtype="bfloat16", beside=["torch"])
    suite.report(frame, out="report")

Sizes are given as on the command line (`"M=512,N=512,K=512"`), as a tuple in the operation's order, or by name
(`{"M": 512, ...}`). Options of an operation are keywords: `causal=True`, `layout="nt"`.

`compare` runs everything in processes of its own, like `python -m suite compare`. `check` and `time` call a function in
the caller's process, so that a crash or hang of the function affects the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite import hardware
from suite.core.errors import UsageError
from suite.core.least import Least
from suite.hardware.device import Device, resolve
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.option import Value
from suite.processes.limits import FIRST_CALL_S
from suite.results.render.timed import timed_lines
from suite.results.row import Row
from suite.results.store import Results
from suite.runner import in_process
from suite.runner.arguments import Dtype, Size, as_texts, check_known, one_case, selection
from suite.runner.observer import Observer, Step
from suite.runner.options import Options, Sustain, sweep_host
from suite.runner.plan import Job, plan, refuse_too_large
from suite.runner.python_words import for_python
from suite.runner.selection import Selection
from suite.timing.result import Timing

if TYPE_CHECKING:
    import pandas as pd

    from suite.checking.check import CheckResult


@dataclass(frozen=True, repr=False)
class Timed(Timing):
    """The times of a function. It is shown in three lines: its time, those of the others, how it was measured."""

    noisy: bool = False
    """True if the time is too uncertain to be ranked: the column `noisy` of its row."""
    rows: tuple[Row, ...] = ()
    """The rows of the function and of the implementations that were timed with it, as `compare` would give them."""

    def __repr__(self) -> str:
        return "\n".join(timed_lines(self.rows))


@for_python
def compare(
    operation: str | Iterable[str],
    *,
    shapes: Size | Iterable[Size] = (),
    implementations: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    files: str | Path | Iterable[str | Path] = (),
    dtypes: Dtype | Iterable[Dtype] = (),
    precisions: str | Iterable[str] = (),
    inputs: str | Iterable[str] = (),
    device: str | None = None,
    timed: bool = True,
    cache: str = "cold",
    sweep: bool = False,
    sustained: str = "none",
    transfers: bool = False,
    compiles: bool = False,
    max_noise: float = 5.0,
    min_time: float = 0.0,
    samples: int = 0,
    repeat: int = 1,
    seed: int = 0,
    timeout: float = FIRST_CALL_S,
    out: str | Path | None = None,
    force: bool = False,
    on_step: Callable[[str], None] | None = None,
    **options: Value | Sequence[Value],
) -> pd.DataFrame:
    """Check every implementation against float64, and time those that agree: `python -m suite compare`.

    Args:
        operation: names, or `all`.
        shapes: one size or several, of a single operation. Without sizes, its default cases run.
        implementations, exclude: patterns of names to run and to leave out, such as `cuda*`. Without patterns, all run.
        files: `.py` and `.cu` files of yours, as for `--with`. They run with your permissions.
        out: a folder for CSV, Markdown and environment record; None writes nothing. `force` replaces files there.
        on_step: called with a line that describes the next step.
        options: options of the operations, one value or several: `causal=True`, `layout=["nn", "nt"]`.

    The other arguments are those of the command line. A name or pattern that is not given means all, or the default.

    Returns:
        One row for each implementation and case, with the columns of the CSV (docs/results.md). A notebook shows it as
        the tables of the command. `attrs["environment"]` is the environment record.

    Raises:
        UsageError: arguments that cannot be used, before any work. ResultsError: the disk of `out` is full.
    """
    from suite.results.frame import frame

    check_known("cache", cache, ("cold", "warm"))
    check_known("sustained", sustained, tuple(Sustain))
    where = resolve(device)
    chosen = selection(operation, shapes, implementations, dtypes, precisions, inputs, options, sweep, files, exclude)
    jobs = _jobs(chosen, where)
    settings = Options(where, cache, timed, seed, timeout, sweep, sweep_host(where, sweep), transfers, compiles)
    settings = replace(settings, max_noise=max_noise / 100, least=_least(min_time, samples), repeat=repeat)
    settings = replace(settings, telling=chosen.telling, sustained=Sustain(sustained))
    record = hardware.environment_record(where.type, where.index)
    return frame(_rows(jobs, settings, record, out, force, on_step), record)


def _jobs(chosen: Selection, where: Device) -> list[Job]:
    """The jobs of a selection. Raises `UsageError` for one that cannot run on the device `where`."""
    memory = hardware.memory_bytes(where.type, where.index)
    jobs = plan(chosen, where, memory)
    refuse_too_large(jobs, memory, where.name)
    return jobs


@for_python
def cases(
    operation: str | Iterable[str],
    *,
    shapes: Size | Iterable[Size] = (),
    dtypes: Dtype | Iterable[Dtype] = (),
    precisions: str | Iterable[str] = (),
    inputs: str | Iterable[str] = (),
    device: str | None = None,
    **options: Value | Sequence[Value],
) -> list[Case]:
    """The cases that `compare` runs with these arguments. `inputs="telling"` gives cases that show the usual mistakes.

    Raises `UsageError` for arguments that cannot be used.
    """
    chosen = selection(operation, shapes, (), dtypes, precisions, inputs, options)
    return [case for job in plan(chosen, resolve(device)) for case in job.cases]


@for_python
def check(
    function: Callable[..., Any],
    operation: str,
    case: Case | Size,
    *,
    dtype: Dtype | None = None,
    precision: str | None = None,
    inputs: str | None = None,
    framework: str = "torch",
    device: str | None = None,
    seed: int = 0,
    **options: Value,
) -> CheckResult:
    """Call `function` as `compare` calls an implementation, in this process, and judge its results.

    Args:
        function: takes and returns arrays of `framework`, with the signature of the operation (docs/own_kernels.md).
        operation: name of the operation.
        case: one of `cases`, or sizes. With sizes, `dtype` (default float32), `precision`, `inputs` and options may be
            given.
        framework: `torch`, `triton`, `cuda` (these three take torch tensors), `jax` or `numpy`.
        device: `cpu`, `cuda` or `cuda:INDEX`; None is the first GPU, or the CPU.
        seed: seed of the random inputs.
        options: options of the operation, such as `causal=True`.

    Returns:
        The verdict, the reason if the function disagrees, and its errors.

    Raises:
        UsageError: arguments that cannot be used, before any work.
        Exception: any exception of `function`. It refuses a case by `NotImplementedError`.
    """
    chosen = one_case(operation, case, dtype, precision, inputs, options)
    return in_process.check(function, in_process.adapter(framework), chosen, resolve(device), seed)


@for_python
def time(
    function: Callable[..., Any],
    operation: str,
    case: Case | Size,
    *,
    dtype: Dtype | None = None,
    precision: str | None = None,
    inputs: str | None = None,
    framework: str = "torch",
    beside: str | Iterable[str] = (),
    device: str | None = None,
    cache: str = "cold",
    max_noise: float = 5.0,
    min_time: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    **options: Value,
) -> Timed:
    """Check `function`, then time it with the recorder of `compare`, in this process.

    Takes the arguments of `check`, and:

        beside: names of implementations of the tree to time in turns with it. If one is a vendor's, `vs_best` is its
            time divided by that of `function`. Above 1, the function is faster than the vendor.
        cache: `cold` or `warm`, the L2 cache before each sample.
        max_noise: half width of the 95% interval, in percent, above which more samples are taken.
        min_time, samples: the least time of sampling in seconds, and the least number of samples.

    Raises:
        UsageError: arguments that cannot be used, before any work.
        DisagreementError: a result of the check or of a timed call is wrong. A wrong result has no time.
        Exception: any exception of `function`.
    """
    check_known("cache", cache, ("cold", "warm"))
    chosen, where = one_case(operation, case, dtype, precision, inputs, options), resolve(device)
    others = [in_process.tree_implementation(operation, name, where, chosen) for name in as_texts("beside", beside)]
    timed = [in_process.caller_implementation(function, operation, framework), *others]
    least = _least(min_time, samples)
    measured = in_process.time(timed, chosen, where, cache=cache, max_noise=max_noise / 100, least=least, seed=seed)
    times, row = measured[0]
    return Timed(**vars(times), noisy=row.noisy, rows=tuple(row for _, row in measured))


@for_python
def report(
    runs: pd.DataFrame | str | Path | Sequence[pd.DataFrame | str | Path],
    *,
    formats: str | Iterable[str] = "html",
    out: str | Path | None = None,
    open: bool = False,
) -> list[Path]:
    """Write findings, winners, tables and plots of one run, or of several side by side: `python -m suite report`.

    Args:
        runs: the results of `compare` or some of their rows; folders that it wrote; or tables (.csv).
        formats: `html` (one page), `md` (README.md with plots), `png`, `svg`; several as `"html,md"` or a list.
        out: the folder of the report. None is the folder of the run if a single path is given, else `report`.
        open: show the page in a browser.

    Returns:
        The files. The one to read first comes first.

    Raises:
        UsageError: no results, a frame that lacks columns, an unknown format.
        ResultsError: a file cannot be written.
    """
    from suite.report.frames import side
    from suite.report.write import report as run

    given = [runs] if not isinstance(runs, Sequence) or isinstance(runs, str) else runs
    if not given:
        raise UsageError("report: got no results; give a frame of suite.compare, a folder or a table (.csv)")
    sides = [Path(each) if isinstance(each, str | Path) else side(each, n) for n, each in enumerate(given, 1)]
    return run(sides, list(as_texts("formats", formats)), None if out is None else Path(out), open_it=open)


def _least(min_time: float, samples: int) -> Least:
    if not (0 <= min_time < math.inf and samples >= 0):
        raise UsageError(f"min_time={min_time}, samples={samples}: neither may be negative or infinite")
    return Least(min_time, samples)


def _rows(
    jobs: list[Job],
    settings: Options,
    record: Mapping[str, Any],
    out: str | Path | None,
    force: bool,
    on_step: Callable[[str], None] | None,
) -> list[Row]:
    """The rows of a run, written to the folder `out` as they come, with the environment record."""
    from suite.runner.compare import compare as run

    if out is None:
        return run(jobs, settings, _Follower(None, on_step))
    with Results(Path(out), record, operations=[job.op.name for job in jobs], force=force) as results:
        rows = run(jobs, settings, _Follower(results, on_step))
        results.complete()
    if results.problem is not None:
        raise results.problem
    return rows


class _Follower(Observer):
    """Stores rows, and reports the next step."""

    def __init__(self, results: Results | None, on_step: Callable[[str], None] | None) -> None:
        self._results, self._on_step = results, on_step

    def step(self, step: Step) -> None:
        if self._on_step is not None:
            self._on_step(f"[{step.done}/{step.total}] {step.operation} {step.case}: {step.doing}")

    def store(self, operation: Operation, rows: Sequence[Row]) -> None:
        if self._results is not None:
            self._results.put(operation.name, rows)
