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
        help="Operations: names or patterns such as 'mat*', separated by commas, or all.",
        autocompletion=complete_operation,
    ),
]
ReferenceOption = Annotated[
    Path | None,
    typer.Option(
        "--reference", metavar="FILE", help="Instead of --op: your .py, whose function `reference` is the operation."
    ),
]
KernelBenchOption = Annotated[
    Path | None,
    typer.Option(
        "--kernelbench", metavar="FILE", help="Instead of --op: a KernelBench problem; --with adds solutions."
    ),
]
GpuModeOption = Annotated[
    Path | None,
    typer.Option("--gpumode", metavar="DIR", help="Instead of --op: a GPU MODE problem; --with adds submissions."),
]
ImplementationOption = Annotated[
    list[str] | None,
    typer.Option("--impl", metavar="NAME", help="Only these implementations: names, or patterns such as 'cuda*'."),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="NAME", help="Leave out these implementations: names or patterns."),
]
DtypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="NAME",
        help="fp32, fp16, bf16 or full names. fp64 and fp8 run only if named here; `list` says where they exist.",
    ),
]
PrecisionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="Arithmetic of products: ieee or tf32 for float32, promoted or fast for float8.",
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
    typer.Option("--shapes-from", metavar="FILE", help="Read shapes from a .csv, .json or .yaml file."),
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
        help="GPUs that share the cases, one case at a time on each: a number, or all. For operations over several "
        "GPUs: ranks (default: 2). On a CPU: processes, which share cases only with --no-time.",
    ),
]
ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Share the cases among the devices of a cluster. `cluster start` prints its address; --device chooses "
        "a model of device.",
    ),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Use no TLS: anyone who reaches the cluster's port can run programs as you.")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random inputs.")]
FilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="FILE", help="Add your own .py or .cu as with/<file name>. It runs with your permissions."
    ),
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="KIND",
        help="Kind of inputs: nan, strided, ... or all; `list` shows them. Default: normal, after a check on small "
        "cases that expose common mistakes (telling cases). none: without that check. telling: one row for each of "
        "those cases.",
    ),
]
CacheOption = Annotated[
    str, typer.Option(metavar="STATE", help="State of the L2 cache before each sample: cold or warm.")
]
SweepOption = Annotated[
    bool,
    typer.Option("--sweep", help="Sizes from tiny to large; on a GPU also the implementations on the CPU."),
]
TransfersOption = Annotated[
    bool, typer.Option("--transfers", help="Also time copying inputs to the device and the result back.")
]
CompileOption = Annotated[bool, typer.Option("--compile", help="Also time the first call in a fresh process (slow).")]
SustainedOption = Annotated[
    Sustain,
    typer.Option(
        "--sustained",
        metavar="ROWS",
        help="Rows that are also timed back to back for 2 s, with their energy: all; fastest (of each framework and "
        "of the vendors); largest (the fastest, in each operation's largest case only); none.",
    ),
]
MaxNoiseOption = Annotated[
    float,
    typer.Option("--max-noise", metavar="PERCENT", help="A row with a wider 95% interval is noisy and not ranked."),
]
MinTimeOption = Annotated[
    float,
    typer.Option("--min-time", metavar="SECONDS", help="Sample each row for at least this long.", min=0, max=86400),
]
SamplesOption = Annotated[
    int, typer.Option("--samples", metavar="N", help="Take at least N samples of each row.", min=0)
]
RepeatOption = Annotated[
    int, typer.Option("--repeat", metavar="N", help="Time in N fresh processes; rows have the medians.", min=1, max=100)
]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile", metavar="PROFILER", help="ncu: run Nsight Compute, which says what limits each timed row."
    ),
]
CountOption = Annotated[
    bool,
    typer.Option("--count", help="Count what kernels do, without a GPU: requests, sectors, bank conflicts, flops."),
]
DumpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dump", metavar="A,B", help="Write the kernels' code to the run's folder: ptx, sass, ttir, ttgir, hlo."
    ),
]
OnceOption = Annotated[
    str,
    typer.Option("--once", metavar="IMPL", help="Only call IMPL once, after cudaProfilerStart: for a profiler."),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Exit with status 1 also if an ok proves little: weak bound, unused input.")
]
NoTimeOption = Annotated[bool, typer.Option("--no-time", help="Check results, time nothing.")]
TimeoutOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Limit of an implementation's first call; later calls have at most 30 seconds."
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
    bool, typer.Option("--publish", help="Write the tables to results/<device>/ itself, to be committed.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace existing files, such as the tables of another run.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue the last run of the same command, in --out or its own folder.")
]
CommitOption = Annotated[
    str,
    typer.Option("--commit", metavar="HASH", help="Git commit to record, if this tree is a copy without its history."),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option("--columns", metavar="A,B", help="Columns to show: names from the CSV, or rate, note."),
]
SortOption = Annotated[
    str,
    typer.Option("--sort", metavar="COLUMN", help="Sort each table by this column, best row first, e.g. device_us."),
]
WideOption = Annotated[bool, typer.Option("--wide", help="Show every column that has a value.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print only failures and the summary line.")]
BaselineOption = Annotated[
    str, typer.Option("--baseline", metavar="IMPL", help="Compare with IMPL instead of the best vendor implementation.")
]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="NAME", help="csv, or parquet, which adds a second file and needs pyarrow.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, everything else on stderr.")
]


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
