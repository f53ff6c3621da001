"""`python -m suite report RUN...` renders results as a page, as Markdown and as plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.options import folder


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Results folders, or tables (.csv), of one run or several.")
    ],
    formats: Annotated[
        str, typer.Option("--format", help="html, md, png, svg; several with commas between them.")
    ] = "html",
    out: Annotated[
        Path | None,
        typer.Option(
            parser=folder, metavar="PATH", help="Folder of the report. Default: the run's; of several runs: report/."
        ),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show results: findings, winners, tables to sort and filter, plots, provenance.

    html is one page without any other file; md is README.md with plots as SVG. Several runs stand side by side.
    """
    from suite.report.write import report as run

    for path in run(runs, [name.strip() for name in formats.split(",")], out, open_it=open_it):
        print(path)
