"""plan() turns a selection into cases and implementations, and refuses what cannot be run before any work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from suite import ops
from suite.core.errors import UsageError
from suite.core.names import did_you_mean, unknown
from suite.external.implementation import from_files
from suite.hardware.device import Device
from suite.implementations import lookup
from suite.implementations.implementation import Implementation
from suite.models.workload import Workload
from suite.numerics.formats import DTYPES, DTYPES_BEYOND, PRECISIONS, SHORT
from suite.problem import realistic
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.shape import Shape
from suite.ranks.devices import DEFAULT_RANKS
from suite.runner.selection import Selection

CPU_SWEEP_FLOPS, CPU_SWEEP_BYTES = 2e10, 2e8
"""Flops and bytes of the largest case of a sweep on a CPU, which takes about a second."""


@dataclass(frozen=True)
class Job:
    """One operation with the cases and implementations chosen for it."""

    op: Operation
    cases: tuple[Case, ...]
    implementations: tuple[Implementation, ...]


def plan(selection: Selection, device: Device, available_bytes: int | None = None) -> list[Job]:
    """The jobs that `selection` asks for on `device`, one for each operation.

    `inputs="all"` leaves out the families that need a GPU if `device` is a CPU, and the cases that need more than
    `available_bytes`. Files of `--with` are kept, whichever implementations are selected.

    Raises `UsageError`, which says what was given and what is valid.
    """
    names = dict.fromkeys(name for op in selection.operations for name in ops.matching(op))
    chosen = [selection.own] if selection.own is not None else [ops.get(name) for name in names]
    _check(selection, chosen, device)
    external = from_files(selection.files, chosen)
    jobs = [
        Job(
            op,
            tuple(_over_ranks(op, selection, _cases(op, selection, device, available_bytes))),
            (*lookup.implementations(op), *external[op.name]),
        )
        for op in chosen
    ]
    jobs = [job for job in jobs if job.cases]
    if not jobs:
        raise UsageError(_no_case_left(selection, chosen))
    return _drop_matching(_keep_matching(jobs, selection.implementations), selection.excluded)


def refuse_too_large(jobs: Sequence[Job], available_bytes: int | None, where: str) -> None:
    """Raise `UsageError` for a case that needs more than `available_bytes`, the memory of `where`."""
    for job in jobs:
        for case in job.cases:
            needed = job.op.memory_bytes(case)
            if available_bytes is not None and needed > available_bytes:
                raise UsageError(
                    f"{case.operation} {case.label} {case.dtype} needs at least {needed / 2**30:,.1f} GiB "
                    f"to run and check; {where} has {available_bytes / 2**30:,.1f} GiB: give smaller sizes"
                )


def refuse_unknown_baseline(jobs: Sequence[Job], baseline: str) -> None:
    """Raise `UsageError` if no implementation of `jobs` is called `baseline`."""
    names = dict.fromkeys(each.name for job in jobs for each in job.implementations)
    if baseline and baseline not in names:
        raise UsageError(
            f"--baseline {baseline!r} is none of the implementations of this run: {_listed(baseline, names)}"
        )


# Refusals


def _check(selection: Selection, chosen: Sequence[Operation], device: Device) -> None:
    """Raise `UsageError` for names that do not exist and for filters that contradict each other."""
    names = " ".join(op.name for op in chosen)
    _check_known("--dtype", selection.dtypes, [*DTYPES, *DTYPES_BEYOND], also=SHORT.values())
    _check_known("--precision", selection.precisions, PRECISIONS)
    if selection.shapes and len(chosen) > 1:
        raise UsageError(f"--shape has the dimensions of one operation, but several are chosen: {names}")
    if selection.workloads and selection.sweep:
        raise UsageError("--model defines the shapes; leave out --sweep")
    if selection.workloads and (selection.shapes or selection.families):
        raise UsageError("--model defines the shapes; leave out --shape and --inputs (except --inputs none)")
    modelled = list(dict.fromkeys(name for each in selection.workloads for name in each.operations))
    if selection.workloads and not {op.name for op in chosen} & set(modelled):
        raise UsageError(f"the model has shapes of {', '.join(modelled)}, not of {names}")
    _check_options(selection, chosen)
    _check_inputs(selection, chosen, device)


def _check_inputs(selection: Selection, chosen: Sequence[Operation], device: Device) -> None:
    if selection.families and selection.sweep:
        raise UsageError("--sweep uses random normal inputs; leave out --inputs (except --inputs none)")
    names = dict.fromkeys(name for op in chosen for name in op.families)
    families = [name for name in selection.inputs if not any(op.has_inputs(name) for op in chosen)]
    _check_known("--inputs", families, [*names, *realistic.KINDS, "telling", "all", "none"])
    if selection.families and "none" in selection.inputs:
        raise UsageError(
            f"--inputs none runs the default inputs alone; leave out --inputs {' --inputs '.join(selection.families)}"
        )
    if "telling" in selection.inputs and selection.shapes:
        raise UsageError("--inputs telling has sizes of its own, so it takes no --shape")
    for name in selection.inputs:
        if device.type != "cuda" and any(op.families[name].needs_gpu for op in chosen if name in op.families):
            raise UsageError(f"--inputs {name}: needs an NVIDIA GPU (more than 2^31 elements); this is a CPU")


def _check_options(selection: Selection, chosen: Sequence[Operation]) -> None:
    for name, values in selection.options.items():
        if not values:
            continue
        declared = [option for op in chosen for option in op.options if option.name == name]
        if not declared:
            known = (option.flag for each in ops.names() for option in ops.options(each) if option.name == name)
            flag = next(known, f"--{name}")
            near = did_you_mean(name, [option.name for op in chosen for option in op.options])
            raise UsageError(f"{flag} is not an option of {' '.join(op.name for op in chosen)}{near}")
        others = [value for value in values if not any(option.accepts(value) for option in declared)]
        if others and declared[0].integers:
            raise UsageError(f"--{name}: {others[0]!r} is none of {declared[0].valid}")
        _check_known(f"--{name}", others, sorted({value for option in declared for value in option.values}))


def _check_known(flag: str, given: Iterable[object], valid: Collection[object], also: Iterable[str] = ()) -> None:
    for value in given:
        if value not in valid:
            raise UsageError(f"{flag}: {unknown(value, valid, also=also)}")


def _check_patterns(flag: str, patterns: Sequence[str], names: Collection[str]) -> None:
    """Raise `UsageError` for a pattern that matches no name."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            if flag == "--impl" and pattern.endswith((".py", ".cu")):
                raise UsageError(f"{flag} {pattern!r} is no implementation; a file is given by --with")
            raise UsageError(f"{flag} {pattern!r} matches none of {_listed(pattern, names)}")


def _listed(given: str, names: Iterable[str]) -> str:
    """The names of a run's implementations, and those nearest to a name that is none of them."""
    return f"{', '.join(names)}{did_you_mean(given, names)}"


def _no_case_left(selection: Selection, chosen: Sequence[Operation]) -> str:
    """The message for a selection without cases: its filters, and the operations that have the arithmetic asked for."""
    names = " ".join(op.name for op in chosen)
    texts = [value for values in selection.options.values() for value in values if isinstance(value, str)]
    asked = " ".join([*selection.dtypes, *selection.precisions, *texts, *selection.inputs])
    having: dict[str, list[str]] = {}
    for op in map(ops.get, ops.names()):
        for dtype in (*op.dtypes, *op.dtypes_beyond):
            for precision in {"ieee", *selection.precisions} & set(op.precisions(dtype)):
                if precision != "ieee":
                    having.setdefault(f"{precision} in {dtype}", []).append(op.name)
            if dtype in op.dtypes_beyond and dtype in selection.dtypes:
                having.setdefault(dtype, []).append(op.name)
    others = [f"operations with {arithmetic}: {', '.join(found)}" for arithmetic, found in having.items()]
    return "; ".join([f"no case left: {names} has no {asked}", *others])


# Cases


def _cases(op: Operation, selection: Selection, device: Device, available_bytes: int | None) -> list[Case]:
    """The cases of one operation, without duplicates."""
    if selection.sweep:
        return _sweep_cases(op, selection, device)
    if selection.families:
        cases = _family_cases(op, selection, device, available_bytes)
    elif selection.workloads:
        cases = [case for each in selection.workloads for case in _workload_cases(op, selection, each)]
    elif selection.shapes:
        cases = _shape_cases(op, selection)
    else:
        cases = _default_cases(op, selection, device)
    asked = selection.options
    for option in sorted(op.options, key=lambda each: each.every):  # those that set a value before those that select
        values = [value for value in asked.get(option.name, ()) if option.accepts(value)]
        if values and option.every:
            cases = [case for case in cases if case.option(option.name, option.values[0]) in values]
        elif values:
            cases = [op.with_options(case, **{option.name: value}) for case in cases for value in values]
    return [
        case
        for case in dict.fromkeys(cases)
        if (not selection.dtypes or selection.workloads or case.dtype in selection.dtypes)
        and (not selection.precisions or case.precision in selection.precisions)
    ]


def _over_ranks(op: Operation, selection: Selection, cases: Sequence[Case]) -> Sequence[Case]:
    """The cases with their number of ranks, if the operation is one over several processes."""
    return [replace(case, ranks=selection.ranks or DEFAULT_RANKS) for case in cases] if op.over_ranks else cases


def _shape_cases(op: Operation, selection: Selection) -> list[Case]:
    """The cases of `--shape`: the given shapes in every dtype and arithmetic."""
    return [
        op.case(shape, dtype, precision, **options)
        for shape in _shapes(op, selection)
        for dtype in (*op.dtypes, *_extra_dtypes(op, selection))
        for precision in [p for p in selection.precisions if p in op.precisions(dtype)] or op.plain_precisions(dtype)
        for options in op.option_combinations(dtype, {})
    ]


def _workload_cases(op: Operation, selection: Selection, workload: Workload) -> list[Case]:
    """The workload's shapes of this operation in every arithmetic, with the options of the workload.

    They are in the dtypes asked for, by default in all; those with a dtype of their own are in this one.
    """
    dtypes = [each for each in (*op.dtypes, *op.dtypes_beyond) if each in (selection.dtypes or op.dtypes)]
    cases: list[Case] = []
    for each in workload.shapes:
        if each.operation == op.name:
            options: dict[str, Any] = dict(each.options)
            _check_options(replace(selection, options={name: (value,) for name, value in options.items()}), [op])
            (shape,) = op.parse_shapes(",".join(f"{name}={size}" for name, size in each.dims.items()))
            cases += [
                op.case(shape, dtype, precision, **options)
                for dtype in ([each.dtype] if each.dtype else dtypes)
                for precision in op.precisions(dtype)
            ]
    return cases


def _shapes(op: Operation, selection: Selection) -> tuple[Shape, ...]:
    """The shapes of `--shape`, without duplicates."""
    return tuple(dict.fromkeys(shape for text in selection.shapes for shape in op.parse_shapes(text)))


def _default_cases(op: Operation, selection: Selection, device: Device) -> list[Case]:
    """The operation's default cases, and those of a dtype or arithmetic that was named but is no default.

    An example of the latter is tf32 on a CPU.
    """
    return [
        replace(case, precision=precision)
        for case in op.plain_cases(device.type, _extra_dtypes(op, selection))
        for precision in [p for p in selection.precisions if p in op.precisions(case.dtype)] or [case.precision]
    ]


def _family_cases(op: Operation, selection: Selection, device: Device, available_bytes: int | None) -> list[Case]:
    """The cases of the families of inputs asked for, at the given sizes or else at the families' own.

    If no dtype was asked for, these are the cases in float32, float16 and bfloat16. A family that has none of these
    dtypes keeps all of its cases.
    """
    shapes = _shapes(op, selection)
    found: list[Case] = []
    placed = (name for name in selection.inputs if name not in op.families and op.has_inputs(name))
    for name, family in {**op.families, **{name: op.family(name) for name in placed}}.items():
        cases = op.cases(name, device.type, shapes, _extra_dtypes(op, selection))
        if not selection.dtypes and any(dtype in DTYPES for dtype in family.dtypes):
            cases = [case for case in cases if case.dtype in DTYPES]
        if name in selection.inputs:
            found += cases
        elif "all" in selection.inputs and (device.type == "cuda" or not family.needs_gpu):
            found += [case for case in cases if available_bytes is None or op.memory_bytes(case) <= available_bytes]
    if "telling" in selection.inputs or ("all" in selection.inputs and not shapes):
        found += _telling_cases(op, selection, device)
    return found


def _telling_cases(op: Operation, selection: Selection, device: Device) -> list[Case]:
    """The telling cases, as cases with rows of their own."""
    return [
        case
        for dtype in (*op.dtypes, *_extra_dtypes(op, selection))
        for precision in op.precisions(dtype)
        for case in op.telling_cases(dtype, precision, device_type=device.type).values()
    ]


def _sweep_cases(op: Operation, selection: Selection, device: Device) -> list[Case]:
    """The sizes asked for, or the operation's sweep over sizes, one dtype and arithmetic after the other.

    The defaults are the first dtype and its first arithmetic. A CPU runs only the sizes of the sweep that take up to
    about a second.
    """
    asked = {
        option.name: values
        for option in op.options
        if (values := tuple(value for value in selection.options.get(option.name, ()) if option.accepts(value)))
    }
    cases = [
        op.case(size, dtype, precision, **options)
        for dtype in selection.dtypes or op.dtypes[:1]
        if dtype in (*op.dtypes, *op.dtypes_beyond)
        for precision in op.precisions(dtype)
        if precision in (selection.precisions or op.precisions(dtype)[:1])
        for options in op.option_combinations(dtype, asked, every=False)
        for size in _shapes(op, selection) or op.sweep
    ]
    if device.type == "cuda" or selection.shapes:
        return cases
    return [case for case in cases if op.flops(case) <= CPU_SWEEP_FLOPS and op.bytes(case) <= CPU_SWEEP_BYTES]


def _extra_dtypes(op: Operation, selection: Selection) -> list[str]:
    """The dtypes asked for that `op` supports beyond those of every operation."""
    return [dtype for dtype in selection.dtypes if dtype in op.dtypes_beyond]


# Implementations


def _keep_matching(jobs: list[Job], patterns: Sequence[str]) -> list[Job]:
    """Keep the implementations that match a pattern, and those of `--with`. Every pattern must match one."""
    if not patterns:
        return jobs
    names = list(dict.fromkeys(i.name for job in jobs for i in job.implementations))
    _check_patterns("--impl", patterns, names)
    kept = [
        replace(
            job,
            implementations=tuple(
                i for i in job.implementations if i.is_external or any(fnmatchcase(i.name, p) for p in patterns)
            ),
        )
        for job in jobs
    ]
    return [job for job in kept if job.implementations]


def _drop_matching(jobs: list[Job], patterns: Sequence[str]) -> list[Job]:
    """Leave out the implementations that match a pattern. Every pattern must match one, and some must remain."""
    names = list(dict.fromkeys(i.name for job in jobs for i in job.implementations))
    _check_patterns("--exclude", patterns, names)
    kept = [
        replace(
            job,
            implementations=tuple(
                each for each in job.implementations if not any(fnmatchcase(each.name, p) for p in patterns)
            ),
        )
        for job in jobs
    ]
    if not any(job.implementations for job in kept):
        raise UsageError(f"--exclude {' --exclude '.join(patterns)} leaves no implementation of {', '.join(names)}")
    return [job for job in kept if job.implementations]
