"""Commands and options; parsing and printing only. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.core.errors import SuiteError, UsageError
from suite.core.text import one_line
from suite.worker.protocol import FIRST_CALL_S

if TYPE_CHECKING:
    from suite.hardware.device import Device
    from suite.problem.operation import Operation
    from suite.results.row import Row
    from suite.runner.compare import Step

app = typer.Typer(
    help="Compare Triton, JAX/XLA and CUDA kernels: which agree with float64, how fast, how close to the limit.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda or cuda:INDEX. Default: the first GPU, or the CPU.")
]
LONGEST_S = 1e6
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]


def main() -> None:
    """Turns errors made on purpose into one line and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
        sys.stdout.flush()
    except UsageError as error:
        _say(f"error: {one_line(error)}")
        raise SystemExit(2) from None
    except SuiteError as error:
        _say(f"error: {one_line(error)}")
        raise SystemExit(1) from None
    except OSError as error:  # stdout is a full disk, say
        _say(f"error: {one_line(error)}")
        raise SystemExit(1) from None


@app.command()
def compare(
    context: typer.Context,
    op: Annotated[list[str], typer.Option("--op", help="Operation, or all. May be repeated.")],
    impl: Annotated[
        list[str] | None, typer.Option(help="Only implementations that match this GLOB, e.g. 'cuda*'.")
    ] = None,
    brought: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="FILE", help="Add a .py or .cu of yours as with/<its name>. It runs with your rights."
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="float32, float16, bfloat16; matmul: float8_e4m3fn, if named.")
    ] = None,
    precision: Annotated[
        list[str] | None,
        typer.Option(help="The arithmetic of matmul: ieee or tf32 in float32, promoted or fast in float8."),
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Sizes by name, e.g. M=512,N=512,K=512.")] = None,
    layout: Annotated[
        list[str] | None, typer.Option(help="nn, tn, nt or tt: which operand is stored transposed.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(help="Kind of inputs: normal (default), nan, strided ... or all; 'list' shows them."),
    ] = None,
    causal: Annotated[bool | None, typer.Option("--causal/--no-causal", help="Attention only. Default: both.")] = None,
    device: DeviceOption = None,
    cache: Annotated[str, typer.Option(help="cold or warm: the L2 cache before each sample.")] = "cold",
    sweep: Annotated[
        bool, typer.Option(help="Sizes from tiny to large; with a GPU, the CPU's lines beside its own.")
    ] = False,
    transfers: Annotated[
        bool, typer.Option(help="Also time copying inputs to the device and the result back.")
    ] = False,
    compiles: Annotated[
        bool, typer.Option("--compile", help="Also time first calls in fresh processes (slow).")
    ] = False,
    no_time: Annotated[bool, typer.Option("--no-time", help="Check agreement only.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.", min=0, max=2**63 - 1)] = 0,
    timeout: Annotated[
        float, typer.Option(help="Seconds that an implementation's first call may take; later ones get 30 at most.")
    ] = FIRST_CALL_S,
    out: Annotated[Path | None, typer.Option(help="Folder of the results. Default: results/<device>/.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the same command's interrupted run in that folder.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every implementation against float64, time those that agree, and tabulate.

    Exit status: 0 when all that could run agrees, 1 when any row is wrong, error or timeout, 2 for unusable arguments.
    """
    from suite import hardware
    from suite.results import render as report
    from suite.results.resume import settings
    from suite.results.store import Results
    from suite.runner import plan as select
    from suite.runner.compare import Options
    from suite.runner.compare import compare as run

    if cache not in ("cold", "warm"):
        raise UsageError(f"--cache: unknown {cache!r}; valid are cold, warm")
    _check_timeout(timeout)
    where = _device(device)
    memory = hardware.memory_bytes(where.type, where.index)
    jobs = select.jobs(
        op,
        device_type=where.type,
        implementations=impl or (),
        dtypes=dtype or (),
        precisions=precision or (),
        shapes=shape or (),
        causal=causal,
        layouts=layout or (),
        inputs=inputs or (),
        sweep=sweep,
        available_bytes=memory,
        brought=brought or (),
    )
    select.refuse_too_large(jobs, memory, where.name)
    _check_tuned(where)
    options = Options(
        where,
        cache=cache,
        timed=not no_time,
        seed=seed,
        timeout_s=timeout,
        native_only=sweep,
        host=_device("cpu") if sweep and where.type == "cuda" else None,
        transfers=transfers,
        compiles=compiles,
    )
    environment = hardware.environment_record(where.type, where.index)
    results = Results(
        out if out is not None else where.results_folder,
        environment,
        operations=[job.op.name for job in jobs],
        settings=settings(context.params, where, environment),
        resumed=resume,
        tell=_say,
    )
    try:
        with results, _progress(quiet=as_json) as (tell, show):
            if results.kept:
                _say(f"resumed: {len(results.kept)} rows are there already")

            def on_rows(op: Operation, rows: list[Row]) -> None:
                results.render(op.name)
                show(rows)

            def keep(op: Operation, rows: list[Row]) -> None:
                results.put(op.name, rows)

            rows = run(jobs, options, kept=results.kept, keep=keep, on_rows=on_rows, on_step=tell)
            results.complete()
    except KeyboardInterrupt:
        rest = f"finished rows are in {results.folder}: the same command with --resume goes on from there"
        _say(f"interrupted; {rest if results.begun else 'no row was finished'}")
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps({"environment": environment, "rows": [_json_row(row) for row in rows]}, allow_nan=False))
    for line in report.crossovers(rows) if not as_json else ():
        print(line, flush=True)
    if results.problem is not None:
        _say(report.summary(rows))
        raise results.problem
    _say(f"{report.summary(rows)}; written to {results.folder}")
    raise typer.Exit(report.exit_status(rows))


@app.command()
def tune(
    op: Annotated[list[str], typer.Option("--op", help="Operation, or all. May be repeated.")],
    impl: Annotated[
        list[str] | None, typer.Option(help="Only implementations that match this GLOB, e.g. 'triton*'.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="As of compare. Default: its default cases.")] = None,
    precision: Annotated[list[str] | None, typer.Option(help="As of compare.")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="As of compare.")] = None,
    layout: Annotated[list[str] | None, typer.Option(help="As of compare.")] = None,
    causal: Annotated[bool | None, typer.Option("--causal/--no-causal", help="As of compare.")] = None,
    device: DeviceOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.", min=0, max=2**63 - 1)] = 0,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a kernel may take to compile; its calls get 30 at most.")
    ] = FIRST_CALL_S,
) -> None:
    """Search for the fastest configurations of autotuned kernels, and keep them for later runs on this device.

    They are kept in triton_kernels/tuned/, by device and version of Triton. Needs an NVIDIA GPU.
    Exit status: 0 when every search ended, 1 when one did not, 2 for unusable arguments.
    """
    from suite import hardware
    from suite.runner import plan as select
    from suite.runner.tune import Line
    from suite.runner.tune import tune as run

    _check_timeout(timeout)
    where = _device(device)
    memory = hardware.memory_bytes(where.type, where.index)
    jobs = select.jobs(
        op,
        device_type=where.type,
        implementations=impl or (),
        dtypes=dtype or (),
        precisions=precision or (),
        shapes=shape or (),
        causal=causal,
        layouts=layout or (),
    )
    select.refuse_too_large(jobs, memory, where.name)
    lines: list[Line] = []

    def on_line(line: Line) -> None:
        lines.append(line)
        print(line, flush=True)

    try:
        path = run(jobs, where, seed=seed, timeout_s=timeout, on_line=on_line, on_step=_say)
    except KeyboardInterrupt:
        _say("interrupted; what was found until then is kept")
        raise typer.Exit(130) from None
    found = sum(line.status == "ok" for line in lines)
    _say(f"{found} of {len(lines)} lines tuned; kept in {path}" if found else "nothing was tuned")
    raise typer.Exit(1 if any(line.failed for line in lines) else 0)


@app.command("list")
def list_command(device: DeviceOption = None, as_json: JsonOption = False) -> None:
    """Operations, implementations and variants; for each whether it can run here, and if not, what is missing.

    Then the kinds of inputs that `compare --inputs` takes.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from suite import ops
    from suite.implementations import builtin

    where = _device(device)
    lines: list[dict[str, Any]] = []
    for name in ops.names():
        for implementation in builtin.implementations(name):
            status, reason = implementation.obstacle(where) or ("ok", "")
            mode = implementation.adapter.mode(where) if status == "ok" else ""
            lines.append(
                {
                    "operation": name,
                    "implementation": implementation.name,
                    "mode": mode,
                    "status": status,
                    "reason": reason,
                    "vendor": implementation.vendor or "",
                    "dtypes_beyond": implementation.dtypes_beyond,
                    "file": implementation.module.replace(".", "/") + ".py",
                }
            )
    if as_json:
        inputs = {name: {key: kind.about for key, kind in ops.get(name).families.items()} for name in ops.names()}
        print(json.dumps({"device": where.name, "implementations": lines, "inputs": inputs}))
        return
    table = Table(title=escape(f"on {where.name}"), title_justify="left")
    for head in ("operation", "implementation", "runs here", "vendor library"):
        table.add_column(head)
    previous = None
    for line in lines:
        runs = line["mode"] if line["status"] == "ok" else f"no: {line['reason']}"
        runs += f"; {' and '.join(line['dtypes_beyond'])} too" if line["dtypes_beyond"] else ""
        name = line["operation"]
        table.add_row(
            "" if name == previous else f"[bold]{name}[/]\n{escape(ops.get(name).formula)}",
            line["implementation"],
            escape(runs),
            line["vendor"],
        )
        previous = name
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in ops.names():
        for key, kind in ops.get(name).families.items():
            kinds.setdefault((key, kind.about), []).append(name)
    inputs_table = Table(title="compare --inputs", title_justify="left")
    for head in ("inputs", "what they are", "operations"):
        inputs_table.add_column(head)
    for (key, about), having in kinds.items():
        inputs_table.add_row(key, escape(about), "all" if len(having) == len(ops.names()) else ", ".join(having))
    Console().print(table, inputs_table)


@app.command("diff")
def diff_command(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Results folder, or one of its tables (.csv).")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The same of the run to be judged.")],
    threshold: Annotated[
        float, typer.Option(help="Change that counts, between 0 and 1: 0.03 is three percent.")
    ] = 0.03,
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="A table for a pull request on stdout.")] = False,
) -> None:
    """Compare two results of one device, row by row: SAME, FASTER, SLOWER or AMBIGUOUS, and what broke.

    Exit status: 0 when nothing is slower by more than the threshold, 3 when a row is SLOWER or BROKEN, 2 when the two
    cannot be compared.
    """
    from rich.console import Console

    from suite.diff import judge as diff
    from suite.diff import render as diff_report

    if as_json and as_markdown:
        raise UsageError("--json and --markdown: give one of the two")
    found = diff.compare(base, new, threshold)
    terminal = Console()
    if as_json:
        print(json.dumps(diff_report.document(found), allow_nan=False))
    elif as_markdown:
        print(diff_report.markdown(found))
    elif terminal.is_terminal:
        diff_report.show(found, terminal)
    else:
        print("\n".join(diff_report.plain_lines(found)))
    for line in [] if as_json or as_markdown else diff_report.remarks(found):
        _say(line)
    _say(diff_report.summary(found))
    raise typer.Exit(found.exit_status)


@app.command()
def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure what the device reaches, for the column 'of limit'.")
    ] = False,
    timer: Annotated[bool, typer.Option("--timer", help="Prove the timer on this GPU, by work of known cost.")] = False,
    device: DeviceOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of limits.json or of timer.csv. Default: in results/<device>/.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Device properties, toolchain and versions, and what to install.

    Exit status: 0; 1 when a line of the timer's proof is off, or when there is nothing to measure with.
    """
    from rich.console import Console

    if measure and timer:
        raise UsageError("--measure and --timer: give one of the two")
    if measure:
        _measure_limits(_device(device), out, as_json)
    elif timer:
        _prove_timer(_device(device), out, as_json)
    elif device is not None or out is not None:
        raise UsageError("--device and --out go with --measure or --timer")
    else:
        from suite.doctor import facts

        facts.show(Console(), as_json=as_json)


def _measure_limits(where: Device, out: Path | None, as_json: bool) -> None:
    from rich.console import Console

    from suite import hardware
    from suite.doctor import peaks, peaks_tables
    from suite.hardware import measured_peaks

    path = (out if out is not None else where.results_folder) / measured_peaks.FILE
    environment = hardware.environment_record(where.type, where.index)
    contents = peaks.measure(where, environment, lambda phase: _say(f"{phase} ..."))
    measured_peaks.write(path, contents)
    if as_json:
        print(json.dumps(contents, allow_nan=False))
    elif (terminal := Console()).is_terminal:
        terminal.print(*peaks_tables.tables(contents))
    else:
        print("\n".join(peaks_tables.plain_lines(contents)))
    _say(f"written to {path}")


def _prove_timer(where: Device, out: Path | None, as_json: bool) -> None:
    from rich.console import Console

    from suite import hardware
    from suite.doctor.timer_proof import proof, render
    from suite.doctor.timer_proof.checks import ProofRow, passed

    folder = out if out is not None else where.results_folder / "proof"
    environment = hardware.environment_record(where.type, where.index)
    terminal = Console()
    rows: list[ProofRow] = []

    def on_row(row: ProofRow) -> None:
        rows.append(row)
        proof.write(folder, rows, environment)  # a later group may end the process
        if not as_json and not terminal.is_terminal:
            print(render.plain_line(row), flush=True)

    proof.prove(where, on_row, lambda phase: _say(f"{phase} ..."))
    if as_json:
        print(json.dumps(render.document(rows, environment), allow_nan=False))
    elif terminal.is_terminal:
        terminal.print(render.rich_table(rows, f"The timer on {where.name}"))
    _say(f"{render.summary(rows)}; written to {folder}")
    raise typer.Exit(0 if passed(rows) else 1)


def _check_tuned(where: Device) -> None:
    """Tell that there are tuned configurations which cannot be used; rows say it too, in the column `config`."""
    from suite.core.errors import ResultsError
    from suite.frameworks.triton import tuned

    try:
        tuned.find(where.name)
    except ResultsError as error:
        _say(f"{one_line(error)}; kernels choose from their short lists")


def _check_timeout(timeout: float) -> None:
    if not 1.0 <= timeout <= LONGEST_S:
        raise UsageError(f"--timeout {timeout:g}: must lie between 1 and {LONGEST_S:g} seconds")


def _device(text: str | None) -> Device:
    from suite.hardware.device import resolve

    return resolve(text)


def _say(text: str) -> None:
    with suppress(OSError):  # nobody listens
        print(text, file=sys.stderr, flush=True)


def _json_row(row: Row) -> dict[str, Any]:
    """JSON has no infinities: an infinite error ratio is the text "inf"."""
    from dataclasses import asdict

    return {
        k: str(v) if isinstance(v, float) and v in (float("inf"), float("-inf")) else v for k, v in asdict(row).items()
    }


@contextmanager
def _progress(*, quiet: bool) -> Iterator[tuple[Any, Any]]:
    """(tell, show): a progress bar and tables on a terminal, plain lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from suite.results import render as report

    terminal = Console()
    errors = Console(stderr=True)

    def show(rows: list[Row]) -> None:
        if quiet:
            return
        if terminal.is_terminal:
            terminal.print(report.rich_table(rows))
        else:
            print("\n".join(report.plain_lines(rows)), flush=True)

    if not errors.is_terminal:
        begin = time.monotonic()

        def tell_plainly(step: Step) -> None:
            progress = f"{time.monotonic() - begin:.1f} s, {step.done}/{step.total}"
            _say(f"[{progress}] {step.operation} {step.case}: {step.doing}")

        yield tell_plainly, show
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("starting")

        def tell(step: Step) -> None:
            progress.update(
                task, total=step.total, completed=step.done, description=f"{step.operation} {step.case}: {step.doing}"
            )

        yield tell, show
