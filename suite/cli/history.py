"""`python -m suite history` shows how the times of a device's rows changed from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.messages import say
from suite.cli.options import DeviceOption, folder, split
from suite.cli.options import device as resolve
from suite.core.errors import UsageError
from suite.core.files import check_writable, refuse_foreign, write_atomically
from suite.core.names import unknown
from suite.numerics.formats import full_name

if TYPE_CHECKING:
    from suite.history.load import CaseHistory

FORMATS = ("csv", "png", "svg")
TABLE = "history.csv"


def history(
    results: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="results/<device>, or a folder of runs. Default: that of this device."),
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option("--op", metavar="NAME", help="Only these operations: names or patterns.")
    ] = None,
    impl: Annotated[
        list[str] | None, typer.Option("--impl", metavar="NAME", help="Only these implementations: names or patterns.")
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option("--dtype", metavar="NAME", help="Only these dtypes: names or patterns.")
    ] = None,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="GLOB", help="Only these cases, e.g. 'M=4096,*'.")
    ] = None,
    device: DeviceOption = None,
    formats: Annotated[
        str, typer.Option("--format", help="Also write files: csv, png, svg, separated by commas.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="PATH", help="Folder of these files. Default: history/ in FOLDER."),
    ] = None,
) -> None:
    """Show how ratios and times changed from run to run in results/<device>/runs/.

    One line for each implementation and case that at least two runs timed. Noisy times are left blank.
    """
    from suite.cli.console import print_lines, stdout
    from suite.history import load, render

    chosen = [name.strip() for name in formats.split(",") if name.strip()]
    for name in chosen:
        if name not in FORMATS:
            raise UsageError(f"--format: {unknown(name, FORMATS)}")
    if out is not None:
        check_writable(out)
    where = results if results is not None else resolve(device).results_folder
    wanted = load.Filter(split(op), split(impl), tuple(map(full_name, split(dtype))), tuple(case or ()))
    every = load.load_history(where, wanted, say)
    shown = load.timed_repeatedly(every)
    console = stdout()
    print_lines(console, render.lines_of(shown, console.width, plain=console.options.ascii_only))
    total, shown_lines = (sum(len(each.lines) for each in cases) for cases in (every, shown))
    if total > shown_lines:
        say(f"not shown: {total - shown_lines} of {total} lines, which only one run timed")
    for path in _write(chosen, every, shown, out if out is not None else where / "history"):
        print(path)


def _write(chosen: list[str], every: Sequence[CaseHistory], shown: Sequence[CaseHistory], out: Path) -> list[Path]:
    """Write the files in the chosen formats. The CSV has every time; plots have the lines that several runs timed."""
    from suite.history import plot, render
    from suite.report.plots.figure import is_plot

    plots = {f"{each.name}.{kind}": each for kind in chosen if kind != "csv" for each in plot.plots_of(shown)}
    tables = [TABLE] if "csv" in chosen else []
    refuse_foreign([out / name for name in tables], render.is_table, "a table of this command")
    refuse_foreign([out / name for name in plots], is_plot, "a plot of this suite")
    for name in tables:
        write_atomically(out / name, render.to_csv(every).encode())
    for name, each in plots.items():
        write_atomically(out / name, each.file(name.rpartition(".")[2]))
    return [out / name for name in (*tables, *plots)]
