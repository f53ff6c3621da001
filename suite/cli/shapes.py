"""`python -m suite shapes config.json` writes the shapes of a transformer's layer, for `compare --shapes-from`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from suite.cli.messages import say
from suite.cli.model_options import WeightsOption
from suite.core.errors import UsageError
from suite.core.package import command
from suite.numerics.formats import DTYPES, SHORT

MAX_SIZE = 1 << 24


def shapes(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A Hugging Face config.json.")],
    batch: Annotated[int, typer.Option(help="Sequences.", min=1, max=MAX_SIZE)] = 1,
    seq: Annotated[int, typer.Option(help="Tokens in a sequence.", min=1, max=MAX_SIZE)] = 4096,
    queries: Annotated[
        int | None,
        typer.Option(help="New tokens in a sequence; 1 for decoding. Default: all.", min=1, max=MAX_SIZE),
    ] = None,
    weights: WeightsOption = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Default: <model>-b<batch>-s<seq>.json.")
    ] = None,
) -> None:
    """Write the shapes of a transformer's layer, with the count of each, to a file for `compare --shapes-from`.

    The report on that run then shows the time of a layer for each implementation.
    """
    from suite.cli.console import print_lines, stdout
    from suite.core.files import refuse_foreign, write_atomically
    from suite.models.config import workload
    from suite.models.workload import is_workload
    from suite.results.render.labels import short_case
    from suite.results.render.layout import Field, table

    if out is not None and out.suffix != ".json":
        raise UsageError(f"--out {out}: the file is JSON; give a name that ends in .json")
    found = workload(config, batch, seq, queries if queries is not None else seq, weights)
    if out is None:
        new = "" if queries is None else f"-q{queries}"
        out = Path(f"{re.sub(r'[^a-z0-9]+', '-', found.model.lower()).strip('-')}-b{batch}-s{seq}{new}.json")
    refuse_foreign([out], is_workload, "a file of this command", "give another file with --out")
    write_atomically(out, found.text())
    console = stdout()
    rows = found.shapes
    print_lines(console, [f"one of {found.layers} layers of {found.title}"])
    columns = [
        Field("part", [each.name for each in rows], False),
        Field("operation", [each.operation for each in rows], False),
        Field("case", [short_case(each.case) for each in rows], False),
        Field("count", [str(each.count) for each in rows]),
    ]
    print_lines(console, table(columns, console.width))
    dtype = f" --dtype {SHORT[found.dtype]}" if found.dtype in DTYPES else ""
    names = " ".join(f"--op {name}" for name in found.operations)
    say(f"written to {out}; to compare: {command()} compare {names} --shapes-from {out}{dtype}")
