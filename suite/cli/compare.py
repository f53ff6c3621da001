"""`python -m suite compare`: check every implementation, time those that agree, tabulate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from suite.cli.cluster_run import surveyed
from suite.cli.compare_run import OperationFile, run_comparison
from suite.cli.model_options import ModelOption, TokensOption, WeightsOption, layers_of, operations_of, own_dtype
from suite.cli.operation_options import NONE_GIVEN
from suite.cli.options import (
    BaselineOption,
    CacheOption,
    ClusterOption,
    ColumnsOption,
    CommitOption,
    CompileOption,
    CountOption,
    DeviceOption,
    DtypeOption,
    DumpOption,
    ExcludeOption,
    FilesOption,
    ForceOption,
    FormatOption,
    GpuModeOption,
    GpusOption,
    ImplementationOption,
    InputsOption,
    InsecureOption,
    JsonOption,
    KernelBenchOption,
    MaxNoiseOption,
    MinTimeOption,
    NoTimeOption,
    OnceOption,
    OperationsArgument,
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
    SustainedOption,
    SweepOption,
    TimeoutOption,
    TransfersOption,
    WideOption,
    check_noise,
    check_seed,
    check_timeout,
    ranks,
    split,
)
from suite.cli.options import device as resolve
from suite.cli.output import Output
from suite.cli.parameters import Parameters
from suite.cli.shape_files import sizes
from suite.core.errors import UsageError
from suite.core.least import Least
from suite.core.names import unknown
from suite.numerics.formats import full_name
from suite.problem.option import Value
from suite.processes.limits import FIRST_CALL_S
from suite.runner.options import Options, Sustain, sweep_host
from suite.runner.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from suite.cluster.hosts import Survey
    from suite.hardware.device import Device
    from suite.problem.source import Kind

EXIT_STATUS = (
    "Exit status: 0 if all that could run agrees; 1 if a row is wrong, error or timeout; 2 for invalid arguments."
)


def compare(
    command: typer.Context,
    operations: OperationsArgument = None,
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
    model: ModelOption = None,
    tokens: TokensOption = None,
    weights: WeightsOption = "",
    operation_options: Mapping[str, tuple[Value, ...]] = NONE_GIVEN,
    inputs: InputsOption = None,
    device: DeviceOption = None,
    gpus: GpusOption = None,
    cluster: ClusterOption = "",
    insecure: InsecureOption = False,
    cache: CacheOption = "cold",
    sweep: SweepOption = False,
    sustained: SustainedOption = Sustain.LARGEST,
    transfers: TransfersOption = False,
    compiles: CompileOption = False,
    profile: ProfileOption = "",
    count: CountOption = False,
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
    force: ForceOption = False,
    commit: CommitOption = "",
    columns: ColumnsOption = None,
    sort: SortOption = "",
    wide: WideOption = False,
    quiet: QuietOption = False,
    baseline: BaselineOption = "",
    file_format: FormatOption = "csv",
    as_json: JsonOption = False,
) -> None:
    """Check every implementation against float64, time those that agree, and print tables."""
    parameters, layers = cast(Parameters, command.params), layers_of(model, tokens, weights)
    op, dtype = [*split(operations), *split(op)] or operations_of(layers), dtype or own_dtype(layers)
    own, sized = _own_file(op, reference, kernelbench, gpumode), sizes(shape, shapes_file, op, layers)
    shown, (where, survey) = _output(parameters), _where(parameters, device)
    selection = _selection(op, impl, exclude, dtype, precision, sized, operation_options, inputs, sweep, files, gpus)
    options = replace(_options(where, parameters), telling=selection.telling)
    run_comparison(selection, own, options, _given(parameters, selection), _folder(where, out, publish), shown, survey)


def _where(parameters: Parameters, device: str | None) -> tuple[Device, Survey | None]:
    """The device of the run, and with `--cluster` the devices of the cluster."""
    survey = surveyed(parameters)
    return (resolve(device), None) if survey is None else (survey.device, survey)


def _given(parameters: Parameters, selection: Selection) -> Parameters:
    """The parameters as they are kept with the results: lists are split, and each name has one form."""
    return {
        **parameters,
        "operations": None,
        "op": selection.operations,
        "impl": selection.implementations,
        "exclude": selection.excluded,
        "dtype": selection.dtypes,
        "precision": selection.precisions,
        "inputs": selection.inputs,
        "shape": selection.shapes,
        "shapes_file": None,
        "model": None,
        "tokens": None,
        "weights": "",
    }


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
    gpus: str | None,
) -> Selection:
    """The selection that the command line asks for."""
    return Selection(
        operations=split(op),
        implementations=split(impl),
        excluded=split(exclude),
        dtypes=tuple(map(full_name, split(dtype))),
        precisions=split(precision),
        options=options,
        inputs=split(inputs),
        sweep=sweep,
        files=tuple(files or ()),
        ranks=ranks(gpus),
        **shapes,
    )


def _own_file(
    op: Sequence[str] | None, reference: Path | None, kernelbench: Path | None, gpumode: Path | None
) -> OperationFile | None:
    """The file that defines the operation, and its kind; None if `--op` is given.

    Raises `UsageError` unless exactly one of `--op`, `--reference`, `--kernelbench` and `--gpumode` is given.
    """
    files: dict[Kind, Path | None] = {"reference": reference, "kernelbench": kernelbench, "gpumode": gpumode}
    own: list[tuple[Path, Kind]] = [(path, kind) for kind, path in files.items() if path is not None]
    given = [*(["--op"] if op else []), *(f"--{kind}" for _, kind in own)]
    if len(given) != 1:
        what = f"got {' and '.join(given)}" if given else "got none; e.g. --op matmul"
        raise UsageError(
            f"compare needs exactly one of --op, --reference FILE, --kernelbench FILE and --gpumode DIR: {what}"
        )
    return own[0] if own else None


def _output(given: Parameters) -> Output:
    """The output options of the command line."""
    from suite.results.render import View

    view = View(split(given["columns"]), given["sort"], given["wide"], given["baseline"], counts=given["count"])
    return Output(view, given["quiet"], given["as_json"], given["file_format"], given["strict"])


def _folder(where: Device, out: Path | None, publish: bool) -> Path | None:
    """The folder that `--out` or `--publish` names; None for neither. Raises `UsageError` for both."""
    if publish and out is not None:
        raise UsageError(f"--publish writes to {where.results_folder}, --out to {out}; give one of the two")
    return where.results_folder if publish else out


def _options(where: Device, given: Parameters) -> Options:
    """The options of the run. Raises `UsageError` for values that are wrong or contradict each other."""
    if given["cache"] not in ("cold", "warm"):
        raise UsageError(f"--cache: {unknown(given['cache'], ('cold', 'warm'))}")
    check_timeout(given["timeout"])
    check_noise(given["max_noise"])
    check_seed(given["seed"])
    if given["repeat"] > 1 and given["no_time"]:
        raise UsageError(f"--repeat {given['repeat']}: --no-time times nothing; give one of the two")
    return Options(
        where,
        given["cache"],
        timed=not given["no_time"],
        seed=given["seed"],
        timeout_s=given["timeout"],
        native_only=given["sweep"],
        host=sweep_host(where, given["sweep"]),
        transfers=given["transfers"],
        compiles=given["compiles"],
        max_noise=given["max_noise"] / 100,
        least=Least(given["min_time"], given["samples"]),
        repeat=given["repeat"],
        sustained=Sustain(given["sustained"]),
        profiled=bool(given["profile"]),
        counted=given["count"],
        dumped=split(given["dump"]),
    )
