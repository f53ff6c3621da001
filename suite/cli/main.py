"""Defines the command line: its commands, and the conversion of errors to one line and an exit status.

A command imports its packages when it runs, so that `--help` imports no framework.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from suite import __version__
from suite.cli import cluster, panels
from suite.cli.compare import EXIT_STATUS, compare
from suite.cli.diff import diff
from suite.cli.doctor import doctor
from suite.cli.emulate import emulate
from suite.cli.exercise import exercise
from suite.cli.history import history
from suite.cli.list_command import list_operations
from suite.cli.messages import say
from suite.cli.new_op import new_op
from suite.cli.nightly import nightly
from suite.cli.operation_options import with_operation_options
from suite.cli.report import report
from suite.cli.reproduce import reproduce
from suite.cli.shapes import shapes
from suite.cli.tune import tune
from suite.core.errors import SuiteError, UsageError
from suite.core.text import one_line

app = typer.Typer(
    help="Compare Triton, JAX/XLA and CUDA kernels: agreement with float64, speed, and share of the hardware limit.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"kernel-suite {__version__}")
        raise typer.Exit


@app.callback()
def options_of_all_commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command("compare", epilog=EXIT_STATUS)(
    panels.in_panels(with_operation_options(compare), panels.COMPARE, panels.OF_OPERATIONS)
)
app.command("tune")(panels.in_panels(with_operation_options(tune), panels.TUNE, panels.OF_OPERATIONS))
app.command("list")(list_operations)
app.command("diff")(diff)
app.command("report")(report)
app.command("history")(history)
app.command("reproduce")(reproduce)
app.command("nightly", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(nightly)
app.command("shapes")(shapes)
app.command("doctor")(doctor)
app.command("emulate")(emulate)
app.command("exercise")(exercise)
app.command("new-op")(new_op)
app.add_typer(cluster.app, name="cluster")


def main() -> None:
    """Run the command of `sys.argv`; ends with `SystemExit`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_working_directory()
        app()
        sys.stdout.flush()
    except UsageError as error:
        say(f"error: {one_line(error)}")
        raise SystemExit(2) from None
    except (SuiteError, OSError) as error:  # OSError: stdout is a full disk, for example
        say(f"error: {one_line(error)}")
        raise SystemExit(1) from None


def _check_working_directory() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the working directory does not exist any more: change to another") from None
