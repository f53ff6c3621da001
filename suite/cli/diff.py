"""`python -m suite diff BASE NEW` compares two results of one device, row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from suite.cli.messages import say
from suite.cli.options import JsonOption
from suite.core.errors import UsageError


def diff(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Results folder or table (.csv) to compare with.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Results folder or table (.csv) to judge.")],
    threshold: Annotated[
        float, typer.Option(help="Change that counts, between 0 and 1: 0.03 is three percent.")
    ] = 0.03,
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a pull request.")] = False,
) -> None:
    """Compare two runs on one device, row by row: SAME, FASTER, SLOWER or AMBIGUOUS, and what broke.

    Exit status: 0 if no row is slower by more than the threshold; 3 if a row is SLOWER or BROKEN; 2 if the two runs
    cannot be compared.
    """
    from suite.cli.console import print_lines, stdout
    from suite.diff import render, table
    from suite.diff.judge import judge
    from suite.diff.load import load

    if as_json and as_markdown:
        raise UsageError("--json and --markdown: give one of the two")
    found = judge(load(base), load(new), threshold)
    if as_json:
        print(json.dumps(render.document(found), allow_nan=False))
    elif as_markdown:
        print(render.markdown(found))
    else:
        console = stdout()
        print_lines(console, table.lines(found, console.width))
    for line in [] if as_json or as_markdown else render.remarks(found):
        say(line)
    say(render.summary(found))
    raise typer.Exit(found.exit_status)
