"""What to run: from names and filters to cases and implementations. The unusable is refused here, before any work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from suite import backends, ops
from suite.backends import Implementation
from suite.errors import UsageError
from suite.op import DTYPES, PRECISIONS, Case, Op

CPU_SWEEP_FLOPS, CPU_SWEEP_BYTES = 2e10, 2e8
"""The largest case of a sweep on a CPU."""


@dataclass(frozen=True)
class Job:
    """One operation with the cases and implementations chosen for it."""

    op: Op
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
    sweep: bool = False,
) -> list[Job]:
    """The jobs that the arguments of `compare` ask for. Raises `UsageError`: what was given, what is valid."""
    chosen = [ops.get(name) for name in (ops.names() if "all" in operations else dict.fromkeys(operations))]
    names = " ".join(op.name for op in chosen)
    _known("--dtype", dtypes, DTYPES)
    _known("--precision", precisions, PRECISIONS)
    if shapes and len(chosen) > 1:
        raise UsageError(f"--shape names the dimensions of one operation, and several were asked for: {names}")
    if shapes and sweep:
        raise UsageError("--sweep runs sizes of its own, so it takes no --shape")
    if causal is not None and not any(op.causal for op in chosen):
        raise UsageError(f"--causal/--no-causal is not an option of {names}")
    known_layouts = {layout for op in chosen for layout in op.layouts}
    if layouts and not known_layouts:
        raise UsageError(f"--layout is not an option of {names}")
    _known("--layout", layouts, sorted(known_layouts))

    found = [
        Job(
            op,
            tuple(
                _sweep(op, device_type, dtypes or ("float32",), precisions or ("ieee",), causal, layouts)
                if sweep
                else _cases(op, device_type, dtypes, precisions, shapes, causal, layouts)
            ),
            tuple(backends.implementations(op.name)),
        )
        for op in chosen
    ]
    found = [job for job in found if job.cases]
    if not found:
        raise UsageError(
            f"no case left: {names} has no {' '.join([*dtypes, *precisions, *layouts])}; "
            "tf32 is an arithmetic of float32 matmul"
        )
    return _matching(found, implementations)


def _cases(
    op: Op,
    device_type: str,
    dtypes: Sequence[str],
    precisions: Sequence[str],
    shapes: Sequence[str],
    causal: bool | None,
    layouts: Sequence[str],
) -> list[Case]:
    """Given shapes: all combinations of what is asked for. No shapes: the operation's default cases, filtered.

    A precision or layout that the defaults leave out (tf32 on a CPU, say) is added to them when it is asked for by
    name.
    """
    chosen: tuple[str | None, ...] = tuple(name for name in layouts if name in op.layouts)
    if shapes:
        sizes = list(dict.fromkeys(op.parse_shape(text) for text in shapes))
        modes: tuple[bool | None, ...] = (False, True) if op.causal else (None,)
        cases = [
            op.case(size, dtype, precision, causal=mode, layout=layout)
            for size in sizes
            for dtype in DTYPES
            for precision in op.precisions(dtype)
            for mode in modes
            for layout in (chosen or (None,))
        ]
    else:
        cases = list(op.default_cases(device_type))
        variations = [
            op.case(case.shape, case.dtype, precision, causal=case.causal, layout=layout)
            for case in cases
            for precision in ([p for p in precisions if p in op.precisions(case.dtype)] or [case.precision])
            for layout in (chosen or (case.layout,))
        ]
        cases = list(dict.fromkeys(variations))
    return [
        case
        for case in cases
        if (not dtypes or case.dtype in dtypes)
        and (not precisions or case.precision in precisions)
        and (causal is None or case.causal in (None, causal))
    ]


def _sweep(
    op: Op,
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
        for precision in op.precisions(dtype)
        if precision in precisions
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
    """Keep the implementations that match a pattern; every pattern must match one."""
    if not patterns:
        return found
    names = list(dict.fromkeys(i.name for job in found for i in job.implementations))
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(f"--impl {pattern!r} matches none of {', '.join(names)}")
    kept = [
        Job(job.op, job.cases, tuple(i for i in job.implementations if any(fnmatchcase(i.name, p) for p in patterns)))
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
