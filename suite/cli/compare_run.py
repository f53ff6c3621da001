"""Plans a comparison, runs it, and reports its end: the work of `python -m suite compare`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from suite.cli.cluster_run import for_cluster
from suite.cli.messages import say
from suite.cli.once import call_once
from suite.cli.output import Output
from suite.cli.parameters import Parameters
from suite.core.errors import ResultsError, UsageError
from suite.core.files import check_writable
from suite.core.text import one_line
from suite.external.source import refuse_unusable
from suite.hardware import host
from suite.results.replacing import CODE, refuse_replacing
from suite.runner.options import Options
from suite.runner.selection import Selection

if TYPE_CHECKING:
    from suite.cluster.hosts import Survey
    from suite.hardware.device import Device
    from suite.models.workload import Workload
    from suite.problem.source import Kind
    from suite.results.row import Row
    from suite.results.store import Results
    from suite.runner.plan import Job

SHARED = 2
"""Without times, processes on a CPU share the cases if each gets so many operations: one takes 3 s to start."""
FRAMEWORK_BYTES = 3 << 30
"""Room for the frameworks that each of these processes loads, beside its largest case."""
OperationFile = tuple[Path, "Kind"]
"""A file that defines the operation, and its kind."""


def run_comparison(
    selection: Selection,
    own: OperationFile | None,
    options: Options,
    parameters: Parameters,
    out: Path | None,
    shown: Output,
    cluster: Survey | None = None,
) -> None:
    """Plan, run and report; with `--once`, make that call alone.

    parameters: those of the command, which a resumed run must share. own: a file that defines the operation, and its
    kind. out: the folder of the results; None makes a new folder for the run. cluster: the devices that run the cases;
    None runs them on this host.
    """
    from suite import hardware
    from suite.results.resume import settings
    from suite.runner.plan import plan, refuse_too_large, refuse_unknown_baseline

    where = options.device
    if name := parameters["once"]:
        alone = not (parameters["profile"] or parameters["dump"])
        return call_once(_with_operation_file(selection, own, options), where, name, options.seed, alone=alone)
    shown.check()
    _check_files(selection, own, options, parameters, out)
    selection = _with_operation_file(selection, own, options, shown.remark)
    memory = cluster.memory_bytes if cluster is not None else hardware.memory_bytes(where.type, where.index)
    jobs = plan(selection, where, memory)
    if cluster is not None:
        jobs, options = for_cluster(jobs, options, cluster, shown.remark)
    options = replace(options, devices=_devices(jobs, parameters["gpus"], options, memory))
    if options.devices > 1 and options.host is not None:
        options = replace(options, host=None)
        shown.remark("--gpus: implementations on the CPU are left out, because several processes share it")
    share = options.devices if where.type == "cpu" and memory is not None else 1
    refuse_too_large(jobs, memory and memory // share, where.name)
    refuse_unknown_baseline(jobs, shown.view.baseline)
    _warn_of_tuned_file(where, shown.remark)
    environment = _environment(where, parameters["commit"], cluster)
    if selection.workloads:
        environment["workloads"] = [each.document() for each in selection.workloads]
        parameters = {**parameters, "shapes_file": " ".join(each.digest for each in selection.workloads)}
    shared = settings(parameters, where, environment)
    environment["code"] = shared["code"]
    results = _results([job.op.name for job in jobs], where, out, environment, parameters, shared)
    options = replace(options, code_folder=results.folder / CODE)
    rows = _run(jobs, options, results, shown, cluster)
    if selection.workloads and options.timed and shown.tables:
        _print_layers(selection.workloads, rows)
    _report(rows, results, environment, options, shown)


def _print_layers(workloads: Sequence[Workload], rows: Sequence[Row]) -> None:
    from suite.cli.console import print_lines, stdout
    from suite.report.layer import layers_of
    from suite.report.layer_table import layer_tables

    console = stdout()
    print_lines(console, layer_tables(layers_of(workloads, rows), console.width))


def _environment(where: Device, commit: str, cluster: Survey | None) -> dict[str, Any]:
    """The environment record of the run, from a host that runs it."""
    from suite import hardware

    return cluster.environment if cluster is not None else hardware.environment_record(where.type, where.index, commit)


def _devices(jobs: Sequence[Job], gpus: str | None, options: Options, memory: int | None) -> int:
    """The number of devices that share the cases. Raises `UsageError` if processes would disturb each other's times.

    memory: bytes of the device, as far as they are known.
    """
    from suite.cluster.devices import device_count

    if all(job.op.over_ranks for job in jobs):
        return 1
    if gpus is None and options.device.type == "cpu" and not options.timed:
        alone = [job for job in jobs if not job.op.over_ranks]
        largest = max((job.op.memory_bytes(case) for job in alone for case in job.cases), default=0)
        most = host.cores() if memory is None else min(host.cores(), memory // (largest + FRAMEWORK_BYTES))
        return max(1, min(most, len(alone) // SHARED))
    devices = device_count(gpus, options.device)
    if devices > 1 and options.device.type == "cpu" and options.timed:
        raise UsageError(
            f"--gpus {gpus} on a CPU: {devices} processes that share its cores would disturb each other's times; "
            "add --no-time"
        )
    return devices


def _check_files(
    selection: Selection, own: OperationFile | None, options: Options, parameters: Parameters, out: Path | None
) -> None:
    """Raise `UsageError` for files and folders that cannot be used, before a user's file runs."""
    from suite.runner import inspection

    inspection.check(parameters["profile"], options, publish=parameters["publish"])
    refuse_unusable(selection.files)
    if out is not None:
        check_writable(out)
        if own is not None and not (parameters["resume"] or parameters["force"]):
            refuse_replacing(out, [own[0].stem])


def _results(
    names: Sequence[str],
    where: Device,
    out: Path | None,
    environment: Mapping[str, Any],
    parameters: Parameters,
    settings: Mapping[str, Any],
) -> Results:
    """The results of the operations `names`, in the folder `out` or in that of the run."""
    from suite.results import run_folder
    from suite.results.store import Results

    resumed = parameters["resume"]
    folder = run_folder.last_or_new if resumed else run_folder.new
    return Results(
        out if out is not None else folder(where.results_folder, names),
        environment,
        operations=names,
        settings=settings,
        resumed=resumed,
        keep_samples=not parameters["publish"],
        force=parameters["force"],
        on_problem=say,
    )


def _with_operation_file(
    selection: Selection, own: OperationFile | None, options: Options, remark: Callable[[str], None] = say
) -> Selection:
    """`selection` with the operation of the user's file, if there is one. A worker loads the file."""
    if own is None:
        return selection
    if selection.workloads:
        raise UsageError(
            f"the shapes of a model belong to the suite's operations, and --{own[1]} defines another one: "
            "leave out --model or --shapes-from, or --" + own[1]
        )
    from suite.runner.operation_file import load_operation

    op = load_operation(*own, options.device, selection.shapes, selection.dtypes, options.timeout_s)
    for sentence in op.weaknesses:
        remark(f"{op.name}: {sentence}: an ok says nothing about it")
    if op.unexamined:
        remark(f"{op.name}: for lack of time, {op.unexamined} inputs and parameters were not tried")
    return replace(selection, own=op)


def _run(jobs: Sequence[Job], options: Options, results: Results, shown: Output, cluster: Survey | None) -> list[Row]:
    """Run `jobs` and return all rows, stored in `results` as they come.

    An interruption ends the command with exit status 130.
    """
    from suite.cli.console import RunConsole
    from suite.cluster import local, remote
    from suite.results import parquet, run_folder
    from suite.runner import compare as one_device

    console = RunConsole(results, view=shown.view, tables=shown.tables, progress=not shown.quiet)
    try:
        with results, console.open():
            if results.kept:
                shown.remark(f"resumed: {len(results.kept)} rows exist already")
            compare = local.compare if options.devices > 1 else one_device.compare
            if cluster is not None:
                compare = partial(remote.compare, address=cluster.address, devices=cluster.devices)
            rows = compare(jobs, options, console, results.kept)
            results.complete()
    except KeyboardInterrupt:
        rest = f"finished rows are in {results.folder}; to continue, repeat the command with --resume"
        say(f"interrupted; {rest if results.begun else 'no row was finished'}")
        raise typer.Exit(130) from None
    finally:
        if results.begun:
            run_folder.set_latest(results.folder)
    if results.begun and results.problem is None:
        _write_maps(results.folder, rows, shown.remark)
    if shown.file_format == "parquet" and rows:
        parquet.write(results.folder, rows)
    console.finished(rows)
    return rows


def _write_maps(folder: Path, rows: Sequence[Row], remark: Callable[[str], None]) -> None:
    """Write an image for each wrong row that shows the places of its errors."""
    from suite.report.maps import write_maps

    try:
        written = write_maps(folder, rows)
    except ResultsError as error:
        say(f"error: {error}")
    else:
        if written:
            remark(f"error map: {written[0]}" if len(written) == 1 else f"error maps: {written[0].parent}")


def _report(
    rows: Sequence[Row], results: Results, environment: Mapping[str, Any], options: Options, shown: Output
) -> None:
    """Print the messages at the end of a run, and end with its exit status."""
    from rich.console import Console

    from suite.cli.console import print_lines, stdout
    from suite.results.render.failures import failure_lines
    from suite.results.render.summary import crossovers, exit_status, gpus_remark, noise_remark, summary, weak_remark
    from suite.runner import inspection

    if shown.as_json:
        print(json.dumps({"environment": environment, "rows": [_json_row(row) for row in rows]}, allow_nan=False))
    if shown.quiet:
        console = Console(stderr=True) if shown.as_json else stdout()
        print_lines(console, failure_lines(rows, console.width, strict=shown.strict))
    for line in crossovers(rows) if shown.tables else ():
        print(line, flush=True)
    if options.dumped and (written := inspection.summary(rows)):
        shown.remark(f"code: {written}")
    for remark in filter(None, (noise_remark(rows, options.max_noise), weak_remark(rows), gpus_remark(rows))):
        shown.remark(remark)
    if results.problem is not None:
        say(summary(rows))
        raise results.problem
    say(f"{summary(rows)}; written to {results.folder}")
    raise typer.Exit(exit_status(rows, strict=shown.strict))


def _warn_of_tuned_file(where: Device, remark: Callable[[str], None]) -> None:
    """Warn that tuned configurations cannot be used. The column `config` of the rows says it too."""
    from suite.frameworks.triton import tuned

    try:
        tuned.find(where.name)
    except ResultsError as error:
        remark(f"{one_line(error)}; kernels choose from their short lists")


def _json_row(row: Row) -> dict[str, Any]:
    """A row as JSON values. JSON has no infinities, so an infinite error ratio becomes the text "inf"."""
    from suite.results.row import COLUMNS

    values = {name: getattr(row, name) for name in COLUMNS}
    return {k: str(v) if isinstance(v, float) and math.isinf(v) else v for k, v in values.items()}
