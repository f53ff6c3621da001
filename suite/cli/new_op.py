"""`python -m suite new-op` writes skeletons of a new operation."""

from __future__ import annotations

from typing import Annotated

import typer

from suite.core.package import command


def new_op(
    name: Annotated[str, typer.Argument(help="Name of the operation: lower case, digits and underscores.")],
    kind: Annotated[
        str, typer.Option(help="elementwise: y = f(x) of a vector. rowwise: each row of a matrix, as softmax.")
    ] = "elementwise",
) -> None:
    """Write working skeletons of a new operation in every framework, which pass `compare` and all tests.

    Exit status: 0; 2 for a name that cannot be used or that exists.
    """
    from suite.new_op.skeletons import write

    for path in (written := write(name, kind)):
        print(path)
    print(
        f"\nNext, in these {len(written)} files:\n"
        f"  1. suite/ops/{name}.py: the formula, sizes, truth and bound (docs/agreement.md says how to derive one).\n"
        f"  2. The kernels; each works alone: {command()} compare --op {name} --impl torch --no-time\n"
        f"  3. All of them, with every family of inputs: {command()} compare --op {name} --no-time --inputs all\n"
        f"  4. The tests of every operation: python -m pytest tests -k {name}\n"
        "CONTRIBUTING.md explains each part."
    )
