"""`python -m suite reproduce RESULTS` runs rows of a published table again, drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.messages import say
from suite.cli.options import DeviceOption
from suite.cli.options import device as resolve


def reproduce(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Results folder, or one of its tables (.csv).")],
    rows: Annotated[int, typer.Option(min=1, help="Number of rows to draw.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the draw: the same seed draws the same rows everywhere.")] = 0,
    device: DeviceOption = None,
) -> None:
    """Run random rows of a table again on this device: how many times lie within their intervals, and what changed.

    Exit status: 1 if a row that had a time has none now, else 0.
    """
    from suite.diff.change import has_time
    from suite.runner import reproduce

    where = resolve(device)
    side = reproduce.published(results)
    found = reproduce.run(reproduce.drawn(side, rows, seed, where), side, where, say)
    for each in found:
        print(each.text, flush=True)
    for line in reproduce.summary(found, side, where):
        print(line, flush=True)
    raise typer.Exit(0 if all(has_time(each.now) for each in found) else 1)
