"""`python -m suite doctor` lists what is installed, measures the peaks of the device, and proves the timer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.messages import say
from suite.cli.options import DeviceOption, JsonOption, folder
from suite.cli.options import device as resolve
from suite.core.errors import UsageError
from suite.core.files import check_writable, refuse_foreign

if TYPE_CHECKING:
    from suite.hardware.device import Device


def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the rates that the device reaches, for the column 'of limit'.")
    ] = False,
    timer: Annotated[
        bool, typer.Option("--timer", help="Check the timer on this GPU with work of known duration.")
    ] = False,
    device: DeviceOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=folder, metavar="PATH", help="Folder for limits.json or timer.csv. Default: results/<device>/."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show device properties, toolchain, versions, and what to install.

    Exit status: 1 if a check of the timer fails, a measured limit is not stable, or nothing here can measure; else 0.
    """
    if measure and timer:
        raise UsageError("--measure and --timer: give one of the two")
    if measure:
        _measure_peaks(resolve(device), out, as_json)
    elif timer:
        _prove_timer(resolve(device), out, as_json)
    elif device is not None or out is not None:
        raise UsageError("--device and --out need --measure or --timer")
    else:
        from rich.console import Console

        from suite.doctor import facts

        facts.show(Console(), as_json=as_json)


def _measure_peaks(where: Device, out: Path | None, as_json: bool) -> None:
    from rich.console import Console

    from suite import hardware
    from suite.doctor import peaks_tables
    from suite.doctor.local_device import torch_device
    from suite.hardware import measured_peaks
    from suite.timing import peaks

    path = (out if out is not None else where.results_folder) / measured_peaks.FILE
    check_writable(path.parent)
    refuse_foreign([path], measured_peaks.is_ours, "a file of measured limits")
    environment = hardware.environment_record(where.type, where.index)
    free = hardware.memory_bytes(where.type, where.index)
    contents = peaks.measure(torch_device(where), where.name, free, environment, lambda phase: say(f"{phase} ..."))
    measured_peaks.write(path, contents)
    if as_json:
        print(json.dumps(contents, allow_nan=False))
    elif (terminal := Console()).is_terminal:
        terminal.print(*peaks_tables.tables(contents))
    else:
        print("\n".join(peaks_tables.plain_lines(contents)))
    say(f"written to {path}")


def _prove_timer(where: Device, out: Path | None, as_json: bool) -> None:
    from rich.console import Console

    from suite import hardware
    from suite.doctor.timer_proof import proof, render
    from suite.doctor.timer_proof.checks import ProofRow, passed

    folder = out if out is not None else where.results_folder / "proof"
    check_writable(folder)
    proof.refuse_foreign_files(folder)
    environment = hardware.environment_record(where.type, where.index)
    terminal = Console()
    rows: list[ProofRow] = []

    def on_row(row: ProofRow) -> None:
        rows.append(row)
        proof.write(folder, rows, environment)  # written at once, because a later group may crash the process
        if not as_json and not terminal.is_terminal:
            print(render.plain_line(row), flush=True)

    proof.prove(where, on_row, lambda phase: say(f"{phase} ..."))
    if as_json:
        print(json.dumps(render.document(rows, environment), allow_nan=False))
    elif terminal.is_terminal:
        terminal.print(render.rich_table(rows, f"The timer on {where.name}"))
    say(f"{render.summary(rows)}; written to {folder}")
    raise typer.Exit(0 if passed(rows) else 1)
