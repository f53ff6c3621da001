"""Converts the arguments of a Python caller to the runner's types: a `Selection`, or one `Case`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from suite import ops
from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.numerics.formats import DTYPES, SHORT, full_name
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.option import Value
from suite.runner.selection import Selection

Size = str | Sequence[int] | Mapping[str, int]
"""`"M=512,N=512,K=512"`, `(512, 512, 512)` or `{"M": 512, "N": 512, "K": 512}`."""


def title(case: Case) -> str:
    """A case as tables and messages show it: `matmul M=64,N=64,K=64 float32 ieee`."""
    return f"{case.operation} {case.label} {case.dtype} {case.precision}"


def selection(
    operation: str | Iterable[str],
    shapes: Iterable[Size],
    implementations: str | Iterable[str],
    dtypes: str | Iterable[str],
    precisions: str | Iterable[str],
    inputs: str | Iterable[str],
    options: Mapping[str, Value | Sequence[Value]],
    sweep: bool = False,
    files: Iterable[str | Path] = (),
    excluded: str | Iterable[str] = (),
) -> Selection:
    """Convert the arguments of `suite.compare`. Raises `UsageError` for shapes of several operations."""
    names = as_texts(operation)
    sizes = [shapes] if isinstance(shapes, str | Mapping) else list(shapes)
    if sizes and (len(names) != 1 or names == ("all",)):
        raise UsageError(f"shapes are sizes of one operation, and several were asked for: {' '.join(names)}")
    return Selection(
        operations=names,
        implementations=as_texts(implementations),
        excluded=as_texts(excluded),
        dtypes=tuple(map(full_name, as_texts(dtypes))),
        precisions=as_texts(precisions),
        shapes=tuple(size_text(ops.get(names[0]), size) for size in sizes),
        options={name: (value,) if isinstance(value, bool | str) else tuple(value) for name, value in options.items()},
        inputs=as_texts(inputs),
        sweep=sweep,
        files=tuple(map(Path, files)),
    )


def as_texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """Convert a text or several texts to a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


def size_text(op: Operation, size: Size) -> str:
    """A size in the syntax of the command line: `M=512,N=512,K=512`."""
    if isinstance(size, str):
        return size
    if not isinstance(size, Mapping):
        if len(size) != len(op.dims):
            raise UsageError(f"size {tuple(size)}: {op.name} has {len(op.dims)} dimensions: {', '.join(op.dims)}")
        size = dict(zip(op.dims, size, strict=True))
    return ",".join(f"{name}={value}" for name, value in size.items())


def one_case(
    operation: str,
    case: Case | Size,
    dtype: str | None,
    precision: str | None,
    inputs: str | None,
    options: Mapping[str, Value],
) -> Case:
    """Return `case` itself, or the case of a size. Raises `UsageError` for arguments that cannot be used."""
    op = ops.get(operation)
    if isinstance(case, Case):
        if case.operation != operation:
            raise UsageError(f"the case is of {case.operation}, and the operation asked for is {operation}")
        if options or dtype or precision or inputs:
            raise UsageError("a Case has its dtype, precision, inputs and options; give sizes, or leave these out")
        return case
    dtype, inputs = full_name(dtype or "float32"), inputs or "normal"
    if not op.has_inputs(inputs):
        check_known("inputs", inputs, op.families)
    dtypes = (*DTYPES, *op.dtypes_beyond) if inputs == "normal" else op.family(inputs).dtypes
    check_known("dtype", dtype, dtypes, also=SHORT.values())
    text = size_text(op, case)
    shape, *others = op.parse_shapes(text)
    if others:
        raise UsageError(f"size {text}: stands for {1 + len(others)} sizes; give one")
    made = op.case(shape, dtype, precision, inputs=inputs, **options)
    check_known("precision", made.precision, op.precisions(dtype))
    return made


def check_known(name: str, value: str, valid: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise `UsageError`, with the valid values and those nearest to `value`, unless `value` is one of them.

    `also` are short names, which are suggested but not listed.
    """
    if value not in valid:
        raise UsageError(f"{name}: {unknown(value, valid, also=also)}")
