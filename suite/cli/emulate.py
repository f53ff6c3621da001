"""`python -m suite emulate program.cu` runs a whole CUDA program on the CPU, and checks what its kernels access."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.messages import say
from suite.core.errors import UsageError
from suite.core.files import read_source
from suite.processes import tree

if TYPE_CHECKING:
    from cuda_ref.build.counting import Counts


def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE.cu", help="A CUDA program, with a main function.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments.")] = None,
    count: Annotated[
        bool, typer.Option("--count", help="Count what each kernel does: requests, sectors, bank conflicts, flops.")
    ] = False,
) -> None:
    """Run a whole CUDA program without a GPU, and check each memory access of its kernels.

    A launch fails at an access out of bounds, a host pointer, an uninitialized value or a race; the error names block,
    thread, line and index. Exit status: that of the program, or 1 if it ignores a CUDA error.
    """
    from cuda_ref.build.cache import BuildError
    from cuda_ref.build.programs import program

    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    try:
        read_source(file)  # before its includes: it may be too large
    except OSError as error:
        raise UsageError(f"{file}: {error}") from None
    try:
        built = program(file.absolute(), count)
    except BuildError as error:
        say(f"error: {error}")  # the compiler's lines as they are: its carets point into the line above
        raise typer.Exit(1) from None
    say(f"{file.name}: emulated on the CPU")
    command = [str(built), *(arguments or [])]
    if count:
        raise typer.Exit(_run_and_count(command, built))
    raise typer.Exit(subprocess.run(command, check=False, preexec_fn=tree.end_with_parent).returncode)


def _run_and_count(command: Sequence[str], built: Path) -> int:
    """Run a program, print the counts of its kernels, and return its exit status."""
    from cuda_ref.build.counting import read
    from suite.cli.console import print_lines, stdout

    with tempfile.TemporaryDirectory(prefix="suite-counts-") as folder:
        path = Path(folder, "counts")
        environment = {**os.environ, "CUDA_HOST_COUNTS": str(path)}
        status = subprocess.run(command, check=False, env=environment, preexec_fn=tree.end_with_parent).returncode
        found = read(path, built) if path.exists() else []
    console = stdout()
    if found:
        print_lines(console, _table(found, console.width))
    else:
        say("no kernel was launched, so nothing is counted")
    return status


def _table(found: Sequence[Counts], width: int) -> list[str]:
    """A table with a line for each kernel, and the columns in which one has a value."""
    from suite.results.render.layout import Field, table
    from suite.results.render.text import HEADS

    fields = [Field("kernel", [each.kernel for each in found], is_right=False)]
    for name in vars(found[0]):
        values = [getattr(each, name) for each in found]
        if name != "kernel" and any(values):
            head = HEADS.get(f"count_{name}", name)
            fields.append(Field(head, ["" if value is None else f"{value:,}" for value in values]))
    return [line.plain for line in table(fields, width)]
