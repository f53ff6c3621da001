"""`python -m suite tune` finds the fastest configurations of autotuned kernels on this GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from suite.cli.messages import say
from suite.cli.operation_options import NONE_GIVEN
from suite.cli.options import (
    DeviceOption,
    DtypeOption,
    ImplementationOption,
    MinTimeOption,
    OperationsArgument,
    OperationsOption,
    PrecisionOption,
    SamplesOption,
    SeedOption,
    ShapeOption,
    ShapesFromOption,
    check_seed,
    check_timeout,
    split,
)
from suite.cli.options import device as resolve
from suite.cli.shape_files import sizes
from suite.core.errors import UsageError
from suite.numerics.formats import full_name
from suite.problem.option import Value
from suite.processes.limits import FIRST_CALL_S


def tune(
    operations: OperationsArgument = None,
    op: OperationsOption = None,
    impl: ImplementationOption = None,
    dtype: DtypeOption = None,
    precision: PrecisionOption = None,
    shape: ShapeOption = None,
    shapes_file: ShapesFromOption = None,
    operation_options: Mapping[str, tuple[Value, ...]] = NONE_GIVEN,
    device: DeviceOption = None,
    min_time: MinTimeOption = 0.0,
    samples: SamplesOption = 0,
    seed: SeedOption = 0,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Limit for compiling a kernel; its calls have at most 30 seconds.")
    ] = FIRST_CALL_S,
) -> None:
    """Search for the fastest configurations of autotuned kernels, and keep them for later runs on this device.

    They are kept in triton_kernels/tuned/, by device and version of Triton. Needs an NVIDIA GPU.
    Exit status: 0 if every search ended, 1 if one did not, 2 for invalid arguments.
    """
    from suite import hardware
    from suite.core.least import Least
    from suite.runner.plan import plan, refuse_too_large
    from suite.runner.selection import Selection
    from suite.runner.tune import Search
    from suite.runner.tune import tune as run

    if not (names := (*split(operations), *split(op))):
        raise UsageError("tune takes operations; e.g. tune matmul")
    check_timeout(timeout)
    check_seed(seed)
    where = resolve(device)
    memory = hardware.memory_bytes(where.type, where.index)
    selection = Selection(
        operations=names,
        implementations=split(impl),
        dtypes=tuple(map(full_name, split(dtype))),
        precisions=split(precision),
        options=operation_options,
        **sizes(shape, shapes_file, names),
    )
    jobs = plan(selection, where)
    refuse_too_large(jobs, memory, where.name)
    searches: list[Search] = []

    def on_search(search: Search) -> None:
        searches.append(search)
        print(search, flush=True)

    try:
        least = Least(min_time, samples)
        path = run(jobs, where, seed=seed, timeout_s=timeout, least=least, on_search=on_search, on_step=say)
    except KeyboardInterrupt:
        say("interrupted; configurations found so far are kept")
        raise typer.Exit(130) from None
    found = sum(search.status == "ok" for search in searches)
    say(f"{found} of {len(searches)} kernels tuned; kept in {path}" if found else "nothing was tuned")
    raise typer.Exit(1 if any(search.failed for search in searches) else 0)
