"""`python -m suite nightly` compares, judges the run against the nights before, and writes a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.compare import compare
from suite.cli.messages import say
from suite.cli.operation_options import with_operation_options
from suite.cli.options import DeviceOption, folder
from suite.cli.options import device as resolve
from suite.core.errors import UsageError

DEFAULT = ("--op", "all", "--repeat", "3")
"""Arguments of `compare` if none are given."""


def nightly(
    context: typer.Context,
    site: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="DIR", help="Folder of the site. Default: site/ in FOLDER."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="FOLDER", help="Folder of the runs. Default: results/<device>."),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Change that counts, between 0 and 1: 0.03 is three percent.")
    ] = 0.03,
    device: DeviceOption = None,
) -> None:
    """Run compare, judge the run against earlier nights, and write a site. It takes compare's arguments too.

    A row that is slower than before in two consecutive nights is a regression, in one night a suspect.
    --resume continues an interrupted night.

    Exit status: 3 if a row is a regression or broken, else that of compare.
    """
    from suite.diff.judge import check_threshold
    from suite.nightly.nights import NIGHTLY, runs, unfinished
    from suite.nightly.site import against_before, write_site
    from suite.results import run_folder

    given = [each for each in context.args if each != "--resume"] or list(DEFAULT)
    if fixed := {"--out", "--publish", "--json"} & {each.partition("=")[0] for each in given}:
        raise UsageError(f"nightly chooses the folder itself: leave out {', '.join(sorted(fixed))}")
    check_threshold(threshold)
    where = resolve(device)
    place = results if results is not None else where.results_folder
    interrupted = unfinished(place) if "--resume" in context.args else None
    out = ["--out", str(interrupted), "--resume"] if interrupted else ["--out", str(run_folder.new(place, [NIGHTLY]))]
    status = _compare([*given, "--device", str(where), *out])
    if status not in (0, 1):
        raise typer.Exit(status)
    nights = runs(place, where.name, say, NIGHTLY)
    against, noted, regression = against_before(nights, threshold)
    for line in (f"against the night before: {against}", *noted):
        print(line, flush=True)
    written = write_site([place], site if site is not None else place / "site", threshold, say)
    say(f"site: {written[0]}")
    raise typer.Exit(regression or status)


def _compare(arguments: list[str]) -> int:
    """Run `compare` in this process, and return its exit status."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(with_operation_options(compare))
    return int(app(args=arguments, standalone_mode=False) or 0)
