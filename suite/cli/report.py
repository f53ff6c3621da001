"""`python -m suite report RUN...` renders results as a page, as Markdown and as plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.messages import say
from suite.cli.options import folder
from suite.core.errors import UsageError


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Results folders or tables (.csv) of one or several runs.")
    ],
    formats: Annotated[str, typer.Option("--format", help="html, md, png, svg, separated by commas.")] = "html",
    out: Annotated[
        Path | None,
        typer.Option(
            parser=folder,
            metavar="PATH",
            help="Folder of the report. Default: that of the run; report/ for several runs.",
        ),
    ] = None,
    price_per_hour: Annotated[
        str,
        typer.Option(metavar="X", help="Adds costs: your price for an hour of the device. X,Y: a price for each run."),
    ] = "",
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    frameworks: Annotated[
        Path | None,
        typer.Option(
            parser=folder, metavar="PATH", help="Write one Markdown page instead: JAX against torch, by operation."
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="DIR", help="Write a static site instead: an index, a page for each run."),
    ] = None,
) -> None:
    """Show results: findings, winners, tables to sort and filter, plots, provenance.

    html: one page in one file. md: a README.md with plots as SVG. Several runs are shown side by side.
    --site: a page for each run, including those in results/<device>/runs/, with their history by device.
    """
    from suite.report.write import write_framework_page

    if site is not None:
        _refuse_others("--site DIR", formats, out, others=open_it or bool(price_per_hour))
        from suite.diff.judge import THRESHOLD
        from suite.nightly.site import write_site

        for path in write_site(runs, site, THRESHOLD, say):
            print(path)
        return

    if frameworks is not None:
        _refuse_others("--frameworks PATH", formats, out, others=open_it or bool(price_per_hour))
        print(write_framework_page(runs, frameworks))
        return

    _report(runs, [name.strip() for name in formats.split(",")], out, open_it, _prices(price_per_hour))


def _report(runs: list[Path], formats: list[str], out: Path | None, open_it: bool, prices: list[float]) -> None:
    from suite.report.load import holds_results
    from suite.report.write import report as run

    kept = [path for path in runs if holds_results(path)] or runs
    for path in runs:
        if path not in kept:
            say(f"left out: {path}: no results here")
    for path in run(kept, formats, out, open_it=open_it, prices=prices):
        print(path)


def _prices(text: str) -> list[float]:
    try:
        return [float(each) for each in text.split(",") if text]
    except ValueError:
        raise UsageError(f"--price-per-hour: {text!r} must be a number, or numbers with commas between them") from None


def _refuse_others(given: str, formats: str, out: Path | None, *, others: bool) -> None:
    """Raise `UsageError` if the option `given`, which names what is written of a run, has others beside it."""
    if formats != "html" or out is not None or others:
        raise UsageError(f"{given} writes its own files: leave out --format, --out, --open, --price-per-hour")
