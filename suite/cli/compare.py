"""`python -m suite compare`: check every implementation, time those that agree, tabulate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from suite.cli.messages import say
from suite.cli.operation_options import NONE_GIVEN
from suite.cli.options import (
    BaselineOption,
    CacheOption,
    ColumnsOption,
    CommitOption,
    CompileOption,
    DeviceOption,
    DtypeOption,
    DumpOption,
    ExcludeOption,
    FilesOption,
    FormatOption,
    GpuModeOption,
    ImplementationOption,
    InputsOption,
    JsonOption,
    KernelBenchOption,
    MaxNoiseOption,
    MinTimeOption,
    NoTimeOption,
    OnceOption,
    OperationsOption,
    OutOption,
    PrecisionOption,
    ProfileOption,
    PublishOption,
    QuietOption,
    ReferenceOption,
    RepeatOption,
    ResumeOption,
    SamplesOption,
    SeedOption,
    ShapeOption,
    ShapesFromOption,
    SortOption,
    StrictOption,
    SweepOption,
    TimeoutOption,
    TransfersOption,
    WideOption,
    check_noise,
    check_timeout,
)
from suite.cli.options import device as resolve
from suite.cli.shape_files import sizes
from suite.core.errors import ResultsError, UsageError
from suite.core.least import Least
from suite.core.text import one_line
from suite.numerics.formats import full_name
from suite.problem.option import Value
from suite.processes.limits import FIRST_CALL_S
from suite.runner.options import Options, sweep_host
from suite.runner.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from suite.hardware.device import Device
    from suite.problem.source import Kind
    from suite.results.render import View
    from suite.results.row import Row
    from suite.results.store import Results
    from suite.runner.plan import Job


def compare(
    context: typer.Context,
    op: OperationsOption = None,
    reference: ReferenceOption = None,
    kernelbench: KernelBenchOption = None,
    gpumode: GpuModeOption = None,
    impl: ImplementationOption = None,
    exclude: ExcludeOption = None,
    files: FilesOption = None,
    dtype: DtypeOption = None,
    precision: PrecisionOption = None,
    shape: ShapeOption = None,
    shapes_file: ShapesFromOption = None,
    operation_options: Mapping[str, tuple[Value, ...]] = NONE_GIVEN,
    inputs: InputsOption = None,
    device: DeviceOption = None,
    cache: CacheOption = "cold",
    sweep: SweepOption = False,
    transfers: TransfersOption = False,
    compiles: CompileOption = False,
    profile: ProfileOption = "",
    dump: DumpOption = None,
    once: OnceOption = "",
    no_time: NoTimeOption = False,
    strict: StrictOption = False,
    max_noise: MaxNoiseOption = 5.0,
    min_time: MinTimeOption = 0.0,
    samples: SamplesOption = 0,
    repeat: RepeatOption = 1,
    seed: SeedOption = 0,
    timeout: TimeoutOption = FIRST_CALL_S,
    out: OutOption = None,
    publish: PublishOption = False,
    resume: ResumeOption = False,
    commit: CommitOption = "",
    columns: ColumnsOption = None,
    sort: SortOption = "",
    wide: WideOption = False,
    quiet: QuietOption = False,
    baseline: BaselineOption = "",
    file_format: FormatOption = "csv",
    as_json: JsonOption = False,
) -> None:
    """Check every implementation against float64, time those that agree, and tabulate.

    Exit status: 0 when all that could run agrees, 1 when any row is wrong, error or timeout, 2 for unusable arguments.
    """
    from suite.cli.once import call_once

    _check(cache, timeout, max_noise, repeat, timed=not no_time)
    shown = _output(columns, sort, wide, baseline, quiet=quiet, as_json=as_json, file_format=file_format, strict=strict)
    where, shapes = resolve(device), sizes(shape, shapes_file)
    own = _operation_file(op, reference, kernelbench, gpumode)
    selection = _selection(op, impl, exclude, dtype, precision, shapes, operation_options, inputs, sweep, files)
    options = Options(where, cache, not no_time, seed, timeout, sweep, sweep_host(where, sweep), transfers, compiles)
    options = replace(options, max_noise=max_noise / 100, least=Least(min_time, samples), repeat=repeat)
    options = replace(options, telling=selection.telling, profiled=bool(profile), dumped=_names(dump))
    if once:
        return call_once(_with_operation_file(selection, own, options), where, once, seed, alone=not (profile or dump))
    _compare(selection, own, options, _given(context, selection), _folder(where, out, publish), shown, resumed=resume)


def _given(context: typer.Context, selection: Selection) -> dict[str, Any]:
    """The command's parameters as they are kept with the results."""
    return {**context.params, "dtype": selection.dtypes, "shape": selection.shapes, "shapes_file": None}


def _selection(
    op: list[str] | None,
    impl: list[str] | None,
    exclude: list[str] | None,
    dtype: list[str] | None,
    precision: list[str] | None,
    shapes: Mapping[str, Any],
    options: Mapping[str, tuple[Value, ...]],
    inputs: list[str] | None,
    sweep: bool,
    files: list[Path] | None,
) -> Selection:
    """The selection that the command line asks for."""
    return Selection(
        operations=tuple(op or ()),
        implementations=tuple(impl or ()),
        excluded=tuple(exclude or ()),
        dtypes=tuple(map(full_name, dtype or ())),
        precisions=tuple(precision or ()),
        options=options,
        inputs=tuple(inputs or ()),
        sweep=sweep,
        files=tuple(files or ()),
        **shapes,
    )


def _operation_file(
    op: Sequence[str] | None, reference: Path | None, kernelbench: Path | None, gpumode: Path | None
) -> tuple[Path, Kind] | None:
    """The file that defines the operation, and its kind; None if `--op` is given.

    Raises `UsageError` unless exactly one of `--op`, `--reference`, `--kernelbench` and `--gpumode` is given.
    """
    files: dict[Kind, Path | None] = {"reference": reference, "kernelbench": kernelbench, "gpumode": gpumode}
    own: list[tuple[Path, Kind]] = [(path, kind) for kind, path in files.items() if path is not None]
    given = [*(["--op"] if op else []), *(f"--{kind}" for _, kind in own)]
    if len(given) != 1:
        what = f"got {' and '.join(given)}" if given else "got none; e.g. --op matmul"
        raise UsageError(f"compare takes one of --op, --reference FILE, --kernelbench FILE and --gpumode DIR: {what}")
    return own[0] if own else None


@dataclass(frozen=True)
class _Output:
    """The options of a run's tables, and the formats of its files."""

    view: View
    quiet: bool
    as_json: bool
    file_format: str
    strict: bool

    def check(self) -> None:
        """Raise `UsageError` for a name that does not exist or a package that is not installed."""
        from suite.results import parquet

        self.view.check()
        if self.file_format not in ("csv", "parquet"):
            raise UsageError(f"--format: unknown {self.file_format!r}; valid are csv, parquet")
        if self.file_format == "parquet":
            parquet.check()


def _output(columns: list[str] | None, sort: str, wide: bool, baseline: str, **more: Any) -> _Output:
    from suite.results.render import View

    return _Output(View(_names(columns), sort, wide, baseline), **more)


def _folder(where: Device, out: Path | None, publish: bool) -> Path | None:
    """The folder that `--out` or `--publish` names; None for neither. Raises `UsageError` for both."""
    if publish and out is not None:
        raise UsageError(f"--publish writes {where.results_folder} and --out {out} another folder; give one of the two")
    return where.results_folder if publish else out


def _names(given: list[str] | None) -> tuple[str, ...]:
    """Splits names at commas: `["a,b", "c"]` becomes ("a", "b", "c")."""
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


def _check(cache: str, timeout: float, max_noise: float, repeat: int, *, timed: bool) -> None:
    """Raise `UsageError` for values that are out of range or contradict each other."""
    if cache not in ("cold", "warm"):
        raise UsageError(f"--cache: unknown {cache!r}; valid are cold, warm")
    check_timeout(timeout)
    check_noise(max_noise)
    if repeat > 1 and not timed:
        raise UsageError(f"--repeat {repeat}: --no-time times nothing; give one of the two")


def _compare(
    selection: Selection,
    own: tuple[Path, Kind] | None,
    options: Options,
    parameters: Mapping[str, Any],
    out: Path | None,
    shown: _Output,
    *,
    resumed: bool,
) -> None:
    """Plan, run and report.

    `parameters` are the command's, which a resumed run must share. `own` is a file that defines the operation, and its
    kind. `out` is the folder of the results; None makes a new folder for the run.
    """
    from suite import hardware
    from suite.results import run_folder
    from suite.results.resume import settings
    from suite.results.store import Results
    from suite.runner import inspection
    from suite.runner.plan import plan, refuse_too_large, refuse_unknown_baseline

    inspection.check(parameters["profile"], options, publish=parameters["publish"])
    shown.check()
    where = options.device
    selection = _with_operation_file(selection, own, options)
    memory = hardware.memory_bytes(where.type, where.index)
    jobs = plan(selection, where, memory)
    refuse_too_large(jobs, memory, where.name)
    refuse_unknown_baseline(jobs, shown.view.baseline)
    _warn_of_tuned_file(where)
    environment = hardware.environment_record(where.type, where.index, str(parameters.get("commit") or ""))
    if selection.workload is not None:
        environment["workload"] = selection.workload.document()
        parameters = {**parameters, "shapes_file": selection.workload.digest}
    shared = settings(parameters, where, environment)
    environment["code"] = shared["code"]
    names = [job.op.name for job in jobs]
    folder = run_folder.last_or_new if resumed else run_folder.new
    results = Results(
        out if out is not None else folder(where.results_folder, names),
        environment,
        operations=names,
        settings=shared,
        resumed=resumed,
        keep_samples=not parameters.get("publish"),
        on_problem=say,
    )
    options = replace(options, code_folder=results.folder / inspection.CODE)
    rows = _run(jobs, options, results, shown)
    if selection.workload is not None and not shown.as_json:
        from suite.report.layer import sentences

        for line in sentences(selection.workload, rows):
            print(line, flush=True)
    _report(rows, results, environment, options, shown)


def _with_operation_file(selection: Selection, own: tuple[Path, Kind] | None, options: Options) -> Selection:
    """`selection` with the operation of the user's file, if there is one. A worker loads the file."""
    if own is None:
        return selection
    if selection.workload is not None:
        raise UsageError(f"--shapes-from: a model's shapes are of the suite's operations, and --{own[1]} has its own")
    from suite.runner.operation_file import load_operation

    op = load_operation(*own, options.device, selection.shapes, selection.dtypes, options.timeout_s)
    for sentence in op.weaknesses:
        say(f"{op.name}: {sentence}: an ok says nothing about it")
    if op.unexamined:
        say(f"{op.name}: for lack of time, {op.unexamined} inputs and parameters were not tried")
    return replace(selection, own=op)


def _run(jobs: Sequence[Job], options: Options, results: Results, shown: _Output) -> list[Row]:
    """Run `jobs` and return all rows, stored in `results` as they come.

    An interruption ends the command with exit status 130.
    """
    from suite.cli.console import RunConsole
    from suite.results import parquet, run_folder
    from suite.runner.compare import compare

    console = RunConsole(results, view=shown.view, tables=not (shown.quiet or shown.as_json), progress=not shown.quiet)
    try:
        with results, console.open():
            if results.kept:
                say(f"resumed: {len(results.kept)} rows are there already")
            rows = compare(jobs, options, console, results.kept)
            results.complete()
    except KeyboardInterrupt:
        rest = f"finished rows are in {results.folder}: the same command with --resume goes on from there"
        say(f"interrupted; {rest if results.begun else 'no row was finished'}")
        raise typer.Exit(130) from None
    finally:
        if results.begun:
            run_folder.set_latest(results.folder)
    if results.begun and results.problem is None:
        _write_maps(results.folder, rows)
    if shown.file_format == "parquet" and rows:
        parquet.write(results.folder, rows)
    if not shown.as_json:
        console.finished(rows)
    return rows


def _write_maps(folder: Path, rows: Sequence[Row]) -> None:
    """Write an image for each wrong row that shows the places of its errors."""
    from suite.report.maps import write_maps

    try:
        written = write_maps(folder, rows)
    except ResultsError as error:
        say(f"error: {error}")
    else:
        if written:
            say(f"where wrong results are wrong: {written[0] if len(written) == 1 else written[0].parent}")


def _report(
    rows: Sequence[Row], results: Results, environment: Mapping[str, Any], options: Options, shown: _Output
) -> None:
    """Print the messages at the end of a run, and end with its exit status."""
    from suite.results.render.summary import crossovers, exit_status, noise_remark, summary, weak_remark
    from suite.runner import inspection

    if shown.as_json:
        print(json.dumps({"environment": environment, "rows": [_json_row(row) for row in rows]}, allow_nan=False))
    for line in crossovers(rows) if not shown.as_json else ():
        print(line, flush=True)
    if options.dumped and (written := inspection.summary(rows)):
        say(f"code: {written}")
    for remark in filter(None, (noise_remark(rows, options.max_noise), weak_remark(rows))):
        say(remark)
    if results.problem is not None:
        say(summary(rows))
        raise results.problem
    say(f"{summary(rows)}; written to {results.folder}")
    raise typer.Exit(exit_status(rows, strict=shown.strict))


def _warn_of_tuned_file(where: Device) -> None:
    """Warn that tuned configurations cannot be used. The column `config` of the rows says it too."""
    from suite.frameworks.triton import tuned

    try:
        tuned.find(where.name)
    except ResultsError as error:
        say(f"{one_line(error)}; kernels choose from their short lists")


def _json_row(row: Row) -> dict[str, Any]:
    """A row as JSON values. JSON has no infinities, so an infinite error ratio becomes the text "inf"."""
    from suite.results.row import COLUMNS

    values = {name: getattr(row, name) for name in COLUMNS}
    return {k: str(v) if isinstance(v, float) and math.isinf(v) else v for k, v in values.items()}
