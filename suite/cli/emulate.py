"""`python -m suite emulate program.cu` runs a whole CUDA program on the CPU, and checks what its kernels access."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from suite.cli.messages import say
from suite.core.errors import SuiteError, UsageError


def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE.cu", help="A CUDA program, with a main function.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments.")] = None,
) -> None:
    """Run a whole CUDA program without a GPU, and check each access of its kernels to memory.

    The program ends with its own exit status. An access out of bounds, a pointer of the host in a kernel and a race in
    shared memory are errors of the launch, which name block, thread, line and index.
    """
    from cuda_ref.build.cache import BuildError
    from cuda_ref.build.programs import program

    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    try:
        built = program(file.absolute())
    except BuildError as error:
        raise SuiteError(str(error)) from None
    say(f"{file.name}: emulated on the CPU")
    raise typer.Exit(subprocess.run([built, *(arguments or [])], check=False).returncode)
