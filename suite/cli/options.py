"""Defines the options that several commands share, and checks their values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite import ops
from suite.core.errors import UsageError
from suite.runner.options import Sustain

if TYPE_CHECKING:
    from suite.hardware.device import Device

MAX_TIMEOUT_S = 1e6
MAX_NOISE_PERCENT = 1000.0
MAX_SEED = 2**63 - 1


def complete_operation(incomplete: str) -> list[str]:
    """Names of operations for the shell's completion."""
    return [name for name in (*ops.names(), "all") if name.startswith(incomplete)]


def split(given: Iterable[str] | None) -> tuple[str, ...]:
    """Split names at commas: `["a,b", "c"]` becomes ("a", "b", "c")."""
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


OperationsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="OPERATION", help="The same as --op.", autocompletion=complete_operation),
]
OperationsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--op",
        metavar="NAME",
        help="Operations: names, a pattern such as 'mat*', or all. Several with commas between them.",
        autocompletion=complete_operation,
    ),
]
ReferenceOption = Annotated[
    Path | None,
    typer.Option(
        "--reference", metavar="FILE", help="Instead of --op: a .py of yours with a function reference, the truth."
    ),
]
KernelBenchOption = Annotated[
    Path | None,
    typer.Option("--kernelbench", metavar="FILE", help="Instead of --op: a problem of KernelBench; --with solutions."),
]
GpuModeOption = Annotated[
    Path | None,
    typer.Option("--gpumode", metavar="DIR", help="Instead of --op: a problem of GPU MODE; --with submissions."),
]
ImplementationOption = Annotated[
    list[str] | None,
    typer.Option("--impl", metavar="NAME", help="Only these implementations: names, or patterns such as 'cuda*'."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="NAME", help="Not these implementations: names or patterns.")
]
DtypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="NAME",
        help="fp32, fp16, bf16, or full names; only if named: fp64, and fp8 of matmul, attention and its gradient.",
    ),
]
PrecisionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="The arithmetic of matmul: ieee or tf32 in float32, promoted or fast in float8.",
    ),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="SIZES", help="Sizes by name: M=512,N=512,K=512; M=N=512,K=1024,4096; M=N=K=2^[10:14]; 4096."
    ),
]
ShapesFromOption = Annotated[
    Path | None,
    typer.Option("--shapes-from", metavar="FILE", help="Shapes from a .csv, .json or .yaml with sizes by name."),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="cpu, cuda or cuda:INDEX. Default: the first GPU, or the CPU."),
]
GpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="N",
        help="Number of GPUs that share the cases, one at a time on each, or all; for operations over several GPUs, "
        "the number of ranks (default: 2). On a CPU: processes; cases are shared with --no-time only.",
    ),
]
ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Share the cases among the devices of a cluster, at the address that `cluster start` prints; --device "
        "names their model.",
    ),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="A cluster without TLS: whoever reaches its port runs programs as you.")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random inputs.")]
FilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="FILE", help="Add a .py or .cu of yours as with/<its name>. It runs with your rights."
    ),
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="KIND",
        help="Kind of inputs: nan, strided ... or all; 'list' shows them. Default: normal, and each implementation "
        "must pass the operation's telling cases; 'none' leaves these out, 'telling' runs them as rows.",
    ),
]
CacheOption = Annotated[str, typer.Option(metavar="STATE", help="cold or warm: the L2 cache before each sample.")]
SweepOption = Annotated[
    bool,
    typer.Option("--sweep", help="Sizes from tiny to large, or of --shape; on a GPU, the CPU's implementations too."),
]
TransfersOption = Annotated[
    bool, typer.Option("--transfers", help="Also time copying inputs to the device and the result back.")
]
CompileOption = Annotated[bool, typer.Option("--compile", help="Also time first calls in fresh processes (slow).")]
SustainedOption = Annotated[
    Sustain,
    typer.Option(
        "--sustained",
        metavar="ROWS",
        help="Also time calls back to back for 2 s, and their energy: all; fastest, of each framework and of the "
        "vendors; largest, the same in the largest case of each operation; or none.",
    ),
]
MaxNoiseOption = Annotated[
    float, typer.Option("--max-noise", metavar="PERCENT", help="Rows with a wider 95% interval are noisy: not ranked.")
]
MinTimeOption = Annotated[
    float,
    typer.Option("--min-time", metavar="SECONDS", help="Sample each for so long, at least.", min=0, max=86400),
]
SamplesOption = Annotated[int, typer.Option("--samples", metavar="N", help="Take N samples of each, at least.", min=0)]
RepeatOption = Annotated[
    int, typer.Option("--repeat", metavar="N", help="Time in N fresh processes; rows have medians.", min=1, max=100)
]
ProfileOption = Annotated[
    str,
    typer.Option("--profile", metavar="PROFILER", help="ncu: Nsight Compute says what limits each row that was timed."),
]
CountOption = Annotated[
    bool,
    typer.Option("--count", help="Count what kernels do, without a GPU: requests, sectors, bank conflicts, flops."),
]
DumpOption = Annotated[
    list[str] | None,
    typer.Option("--dump", metavar="A,B", help="Write the kernels' code beside the run: ptx, sass, ttir, ttgir, hlo."),
]
OnceOption = Annotated[
    str,
    typer.Option("--once", metavar="IMPL", help="Only call IMPL, for a profiler: one call after cudaProfilerStart."),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="End with status 1 also if an ok says little: a weak bound, an unused input.")
]
NoTimeOption = Annotated[bool, typer.Option("--no-time", help="Check agreement only.")]
TimeoutOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Time that an implementation's first call may take; later ones get 30 at most."
    ),
]


def folder(text: str) -> Path:
    """The value of `--out`. Raises `UsageError` for an empty one, which as a path is the current folder."""
    if not text:
        raise UsageError("--out '' is empty; give a folder, . for the current one")
    return Path(text)


OutOption = Annotated[
    Path | None,
    typer.Option(
        parser=folder, metavar="FOLDER", help="Folder of the results. Default: a new one in results/<device>/runs/."
    ),
]
PublishOption = Annotated[
    bool, typer.Option("--publish", help="Write the tables directly in results/<device>/, which are committed.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace files that are there already: tables of another run, other files.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue the same command's interrupted run in that folder.")
]
CommitOption = Annotated[
    str,
    typer.Option("--commit", metavar="HASH", help="Commit of a copy of the tree without its history, for the record."),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option("--columns", metavar="A,B", help="Show these columns: those of the CSV, and rate, note."),
]
SortOption = Annotated[
    str, typer.Option("--sort", metavar="COLUMN", help="Order of rows in a table, the best first, e.g. device_us.")
]
WideOption = Annotated[bool, typer.Option("--wide", help="Show every column that has a value.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print what failed and the verdict, and nothing else.")]
BaselineOption = Annotated[
    str, typer.Option("--baseline", metavar="IMPL", help="Show ratios to IMPL instead of the best vendor's.")
]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="NAME", help="csv; parquet: that too, if pyarrow is installed.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]


def device(text: str | None) -> Device:
    """The device that `--device` names. Raises `UsageError`."""
    from suite.hardware.device import resolve

    return resolve(text)


def ranks(text: str | None) -> int:
    """The number of processes that `--gpus` names; 0 if it is not given. Raises `UsageError`."""
    if text is None:
        return 0
    from suite import hardware
    from suite.ranks.devices import DEFAULT_RANKS, MAX_RANKS

    if text == "all":
        return min(MAX_RANKS, max(DEFAULT_RANKS, len(hardware.devices())))
    if not text.isdecimal() or not 1 <= int(text) <= MAX_RANKS:
        raise UsageError(f"--gpus {text!r}: must be a number from 1 to {MAX_RANKS}, or all")
    return int(text)


def check_noise(percent: float) -> None:
    """Raise `UsageError` for a `--max-noise` that is out of range."""
    if not 0.0 < percent <= MAX_NOISE_PERCENT:
        raise UsageError(f"--max-noise {percent:g}: must lie between 0 and {MAX_NOISE_PERCENT:g} percent, e.g. 5")


def check_seed(seed: int) -> None:
    """Raise `UsageError` for a `--seed` that is out of range."""
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"--seed {seed}: must lie between 0 and {MAX_SEED}")


def check_timeout(timeout: float) -> None:
    """Raise `UsageError` for a `--timeout` that is out of range."""
    if not 1.0 <= timeout <= MAX_TIMEOUT_S:
        raise UsageError(f"--timeout {timeout:g}: must lie between 1 and {MAX_TIMEOUT_S:g} seconds")
