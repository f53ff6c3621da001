"""What to run: from names and filters to cases and implementations. The unusable is refused here, before any work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from suite import ops
from suite.core.errors import UsageError
from suite.implementations import builtin
from suite.implementations.external.implementation import from_files
from suite.implementations.implementation import Implementation
from suite.problem.operation import DTYPES, DTYPES_BEYOND, PRECISIONS, Case, Operation

CPU_SWEEP_FLOPS, CPU_SWEEP_BYTES = 2e10, 2e8
"""The largest case of a sweep on a CPU."""


@dataclass(frozen=True)
class Job:
    """One operation with the cases and implementations chosen for it."""

    op: Operation
    cases: tuple[Case, ...]
    implementations: tuple[Implementation, ...]


def jobs(
    operations: Sequence[str],
    *,
    device_type: str,
    implementations: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    precisions: Sequence[str] = (),
    shapes: Sequence[str] = (),
    causal: bool | None = None,
    layouts: Sequence[str] = (),
    inputs: Sequence[str] = (),
    sweep: bool = False,
    available_bytes: int | None = None,
    brought: Sequence[Path] = (),
) -> list[Job]:
    """The jobs that the arguments of `compare` ask for. Raises `UsageError`: what was given, what is valid.

    `brought` are the files of `--with`, which stay whatever `implementations` chooses. `--inputs all` leaves out what
    the device cannot hold: families for GPUs on a CPU, and cases that need more than `available_bytes`.
    """
    chosen = [ops.get(name) for name in (ops.names() if "all" in operations else dict.fromkeys(operations))]
    names = " ".join(op.name for op in chosen)
    _known("--dtype", dtypes, [*DTYPES, *DTYPES_BEYOND])
    _known("--precision", precisions, PRECISIONS)
    if shapes and len(chosen) > 1:
        raise UsageError(f"--shape names the dimensions of one operation, and several were asked for: {names}")
    if shapes and sweep:
        raise UsageError("--sweep runs sizes of its own, so it takes no --shape")
    if causal is not None and not any(op.causal for op in chosen):
        raise UsageError(f"--causal/--no-causal is not an option of {names}")
    if inputs and sweep:
        raise UsageError("--sweep has random normal inputs, so it takes no --inputs")
    _known("--inputs", inputs, [*dict.fromkeys(name for op in chosen for name in op.families), "all"])
    for name in inputs:
        if device_type != "cuda" and any(op.families[name].needs_gpu for op in chosen if name in op.families):
            raise UsageError(f"--inputs {name}: needs an NVIDIA GPU (more than 2^31 elements); this is a CPU")
    external = from_files(brought, [op.name for op in chosen])
    known_layouts = {layout for op in chosen for layout in op.layouts}
    if layouts and not known_layouts:
        raise UsageError(f"--layout is not an option of {names}")
    _known("--layout", layouts, sorted(known_layouts))

    found = [
        Job(
            op,
            tuple(
                _sweep(op, device_type, dtypes or ("float32",), precisions, causal, layouts)
                if sweep
                else _cases(op, device_type, dtypes, precisions, shapes, causal, layouts)
                if not inputs
                else _of_families(op, device_type, dtypes, precisions, shapes, causal, layouts, inputs, available_bytes)
            ),
            (*builtin.implementations(op.name), *external[op.name]),
        )
        for op in chosen
    ]
    found = [job for job in found if job.cases]
    if not found:
        raise UsageError(
            f"no case left: {names} has no {' '.join([*dtypes, *precisions, *layouts, *inputs])}; "
            "tf32 is an arithmetic of float32 matmul, promoted and fast are those of its float8_e4m3fn"
        )
    return _matching(found, implementations)


def _cases(
    op: Operation,
    device_type: str,
    dtypes: Sequence[str],
    precisions: Sequence[str],
    shapes: Sequence[str],
    causal: bool | None,
    layouts: Sequence[str],
) -> list[Case]:
    """Given shapes: all combinations of what is asked for. No shapes: the operation's default cases, filtered.

    A dtype, precision or layout that the defaults leave out (tf32 on a CPU, say) is added to them when it is asked for
    by name.
    """
    chosen: tuple[str | None, ...] = tuple(name for name in layouts if name in op.layouts)
    beyond = [dtype for dtype in dtypes if dtype in op.dtypes_beyond]
    if shapes:
        sizes = list(dict.fromkeys(op.parse_shape(text) for text in shapes))
        modes: tuple[bool | None, ...] = (False, True) if op.causal else (None,)
        cases = [
            op.case(size, dtype, precision, causal=mode, layout=layout)
            for size in sizes
            for dtype in (*DTYPES, *beyond)
            for precision in op.precisions(dtype)
            for mode in modes
            for layout in (chosen or (None,))
        ]
    else:
        cases = op.plain_cases(device_type, beyond)
        variations = [
            op.case(case.shape, case.dtype, precision, causal=case.causal, layout=layout)
            for case in cases
            for precision in ([p for p in precisions if p in op.precisions(case.dtype)] or [case.precision])
            for layout in (chosen or (case.layout,))
        ]
        cases = list(dict.fromkeys(variations))
    return [case for case in cases if _wanted(case, dtypes, precisions, causal)]


def _of_families(
    op: Operation,
    device_type: str,
    dtypes: Sequence[str],
    precisions: Sequence[str],
    shapes: Sequence[str],
    causal: bool | None,
    layouts: Sequence[str],
    inputs: Sequence[str],
    available_bytes: int | None,
) -> list[Case]:
    """The cases of the families asked for, at their own sizes or at the given ones, filtered. Further dtypes are left
    out if none is asked for, but not of a family that has no others.
    """
    sizes = tuple(dict.fromkeys(op.parse_shape(text) for text in shapes))
    found: list[Case] = []
    for name, family in op.families.items():
        every = op.cases(name, device_type, sizes)
        if not dtypes and any(dtype in DTYPES for dtype in family.dtypes):
            every = [case for case in every if case.dtype in DTYPES]
        if name in inputs:
            found += every
        elif "all" in inputs and (device_type == "cuda" or not family.needs_gpu):
            found += [case for case in every if available_bytes is None or op.memory_bytes(case) <= available_bytes]
    chosen = tuple(name for name in layouts if name in op.layouts)
    cases = dict.fromkeys(replace(case, layout=layout) for case in found for layout in (chosen or (case.layout,)))
    return [case for case in cases if _wanted(case, dtypes, precisions, causal)]


def _wanted(case: Case, dtypes: Sequence[str], precisions: Sequence[str], causal: bool | None) -> bool:
    return (
        (not dtypes or case.dtype in dtypes)
        and (not precisions or case.precision in precisions)
        and (causal is None or case.causal in (None, causal))
    )


def _sweep(
    op: Operation,
    device_type: str,
    dtypes: Sequence[str],
    precisions: Sequence[str],
    causal: bool | None,
    layouts: Sequence[str],
) -> list[Case]:
    """The operation's sweep, one dtype and arithmetic after the other; on a CPU up to what it computes in a second."""
    cases = [
        op.case(size, dtype, precision, causal=causal, layout=layout)
        for dtype in dtypes
        if dtype in (*DTYPES, *op.dtypes_beyond)
        for precision in op.precisions(dtype)
        if precision in (precisions or op.precisions(dtype)[:1])
        for layout in (tuple(name for name in layouts if name in op.layouts) or (None,))
        for size in op.sweep
    ]
    if device_type == "cuda":
        return cases
    return [case for case in cases if op.flops(case) <= CPU_SWEEP_FLOPS and op.bytes(case) <= CPU_SWEEP_BYTES]


def _known(option: str, given: Sequence[str], valid: Collection[str]) -> None:
    for value in given:
        if value not in valid:
            raise UsageError(f"{option}: unknown {value!r}; valid are {', '.join(valid)}")


def _matching(found: list[Job], patterns: Sequence[str]) -> list[Job]:
    """Keep the implementations that match a pattern, and those of `--with`; every pattern must match one."""
    if not patterns:
        return found
    names = list(dict.fromkeys(i.name for job in found for i in job.implementations))
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(f"--impl {pattern!r} matches none of {', '.join(names)}")
    kept = [
        replace(
            job,
            implementations=tuple(
                i for i in job.implementations if i.is_external or any(fnmatchcase(i.name, p) for p in patterns)
            ),
        )
        for job in found
    ]
    return [job for job in kept if job.implementations]


def refuse_too_large(found: Sequence[Job], available_bytes: int | None, where: str) -> None:
    """Raise `UsageError` for a case that cannot fit into `available_bytes`, the memory of `where`."""
    for job in found:
        for case in job.cases:
            needed = job.op.memory_bytes(case)
            if available_bytes is not None and needed > available_bytes:
                raise UsageError(
                    f"{case.operation} {case.label} {case.dtype} needs at least {needed / 2**30:,.1f} GiB "
                    f"to run and check; {where} has {available_bytes / 2**30:,.1f} GiB: give a smaller --shape"
                )
