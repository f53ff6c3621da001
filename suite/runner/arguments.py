"""Converts the arguments of a Python caller to the runner's types: a `Selection`, or one `Case`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, TypeGuard

from suite import ops
from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.numerics.formats import SHORT, full_name
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.option import Value
from suite.runner.selection import Selection

Size = str | int | Sequence[int] | Mapping[str, int]
"""`"M=512,N=512,K=512"`, `(512, 512, 512)`, `{"M": 512, "N": 512, "K": 512}`, or 512 for every dimension."""
Dtype = Any
"""`"float16"`, `"fp16"`, `torch.float16`, or a type of NumPy or JAX."""


def title(case: Case) -> str:
    """A case as tables and messages show it: `matmul M=64,N=64,K=64 float32 ieee`."""
    return f"{case.operation} {case.label} {case.dtype} {case.precision}"


def selection(
    operation: str | Iterable[str],
    shapes: Size | Iterable[Size],
    implementations: str | Iterable[str],
    dtypes: Dtype | Iterable[Dtype],
    precisions: str | Iterable[str],
    inputs: str | Iterable[str],
    options: Mapping[str, Value | Sequence[Value]],
    sweep: bool = False,
    files: str | Path | Iterable[str | Path] = (),
    excluded: str | Iterable[str] = (),
) -> Selection:
    """Convert the arguments of `suite.compare`. Raises `UsageError` for shapes of several operations."""
    names = as_texts("operation", operation)
    given = (
        shapes if is_whole(shapes) or isinstance(shapes, str | Mapping | list) else tuple(iterated("shapes", shapes))
    )
    empty = isinstance(given, Sequence) and not given
    if not empty and (len(names) != 1 or names == ("all",)):
        raise UsageError(f"shapes are sizes of one operation, but several are chosen: {' '.join(names)}")
    return Selection(
        operations=names,
        implementations=as_texts("implementations", implementations),
        excluded=as_texts("exclude", excluded),
        dtypes=dtype_names("dtypes", dtypes),
        precisions=as_texts("precisions", precisions),
        shapes=() if empty else tuple(sizes_text(ops.get(names[0]), given)),
        options={name: _option_values(name, value) for name, value in options.items()},
        inputs=as_texts("inputs", inputs),
        sweep=sweep,
        files=tuple(Path(each) for each in ([files] if isinstance(files, str | Path) else iterated("files", files))),
    )


def _option_values(name: str, given: Any) -> tuple[Value, ...]:
    """The values of an option: one or several, where 0 is the same as "0"."""
    several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    return tuple(_option_value(name, value) for value in several)


def _option_value(name: str, given: Any) -> Value:
    if isinstance(given, bool | str):
        return given
    if is_whole(given):
        return str(given)
    raise UsageError(f"{name}: {given!r} is neither a text nor True or False")


def iterated(argument: str, given: Any) -> Iterable[Any]:
    """`given`, if it can be iterated over. Raises `UsageError` if not."""
    if not isinstance(given, Iterable):
        raise UsageError(f"{argument}: {given!r} is neither a text nor a list")
    return given


def as_texts(argument: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Convert a text, which may have commas, or several texts to a tuple. Raises `UsageError` for other values."""
    values = (given,) if isinstance(given, str) else tuple(iterated(argument, given))
    for value in values:
        if not isinstance(value, str):
            raise UsageError(f"{argument}: {value!r} is no text")
    return tuple(name.strip() for text in values for name in text.split(",") if name.strip())


def dtype_names(argument: str, given: Dtype | Iterable[Dtype]) -> tuple[str, ...]:
    """The names of dtypes: a text, an object of torch, NumPy or JAX, or several. Raises `UsageError` for others."""
    values = as_texts(argument, given) if isinstance(given, str) else given
    return tuple(_dtype_name(argument, each) for each in (values if isinstance(values, Iterable) else [values]))


def _dtype_name(argument: str, given: Dtype) -> str:
    """`float16` for `torch.float16`, `numpy.float16`, `numpy.dtype("float16")` or `"fp16"`."""
    text = given if isinstance(given, str) else str(given) if str(given).startswith("torch.") else ""
    name = text or getattr(given, "name", None) or getattr(given, "__name__", None)
    if not isinstance(name, str):
        raise UsageError(f"{argument}: {given!r} is no dtype; give a name such as 'float16', or torch.float16")
    return full_name(name.removeprefix("torch."))


def is_whole(value: Any) -> TypeGuard[int]:
    """True for an integer of Python or NumPy."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def sizes_text(op: Operation, shapes: Any) -> list[str]:
    """The sizes of `shapes`: one size, or several.

    A tuple of integers is one size, and so is a list of as many as the operation has dimensions, if these are several.
    """
    if isinstance(shapes, str | Mapping) or is_whole(shapes):
        return [size_text(op, shapes)]
    is_size = isinstance(shapes, tuple) or len(shapes) == len(op.dims)
    if len(op.dims) > 1 and is_size and all(map(is_whole, shapes)):
        return [size_text(op, shapes)]
    return [size_text(op, each) for each in shapes]


def size_text(op: Operation, size: Size) -> str:
    """A size in the syntax of the command line: `M=512,N=512,K=512`. Raises `UsageError` for what is no size."""
    dims = f"{op.name} has {len(op.dims)} dimensions: {', '.join(op.dims)}"
    if isinstance(size, str):
        return size
    if is_whole(size):
        if len(op.dims) > 1 and not op.is_square:
            raise UsageError(f"size {size}: {dims}; give a number for each")
        return ",".join(f"{name}={size}" for name in op.dims)
    if not isinstance(size, Mapping):
        if not isinstance(size, Sequence) or isinstance(size, str) or not all(map(is_whole, size)):
            raise UsageError(f"size {size!r}: is neither whole numbers nor a text; {dims}")
        if len(size) != len(op.dims):
            raise UsageError(f"size {tuple(size)}: {dims}")
        size = dict(zip(op.dims, size, strict=True))
    return ",".join(f"{name}={value}" for name, value in size.items())


def one_case(
    operation: str,
    case: Case | Size,
    dtype: Dtype | None,
    precision: str | None,
    inputs: str | None,
    options: Mapping[str, Value],
) -> Case:
    """Return `case` itself, or the case of a size. Raises `UsageError` for arguments that cannot be used."""
    if not isinstance(operation, str):
        raise UsageError(f"operation: {operation!r} is no text")
    op = ops.get(operation)
    if op.over_ranks:
        raise UsageError(f"{operation} runs in several processes: compare(..., files=[...]) calls a file in each")
    if isinstance(case, Case):
        if case.operation != operation:
            raise UsageError(f"the case is of {case.operation}, and the operation asked for is {operation}")
        if options or dtype or precision or inputs:
            raise UsageError("a Case has its dtype, precision, inputs and options; give sizes, or leave these out")
        return case
    dtype, inputs = _dtype_name("dtype", op.dtypes[0] if dtype is None else dtype), inputs or "normal"
    if not op.has_inputs(inputs):
        check_known("inputs", inputs, op.families)
    family = op.family(inputs)
    usual = (*op.dtypes, *op.dtypes_beyond) if inputs == "normal" else family.dtypes
    dtypes = dict.fromkeys((*usual, *filter(family.supports, op.dtypes_beyond)))
    check_known("dtype", dtype, dtypes, also=SHORT.values())
    text = size_text(op, case)
    shape, *others = op.parse_shapes(text)
    if others:
        raise UsageError(f"size {text}: stands for {1 + len(others)} sizes; give one")
    values = {name: _option_value(name, value) for name, value in options.items()}
    made = op.case(shape, dtype, precision, inputs=inputs, **values)
    check_known("precision", made.precision, op.precisions(dtype))
    return made


def check_known(name: str, value: str, valid: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise `UsageError`, with the valid values and those nearest to `value`, unless `value` is one of them.

    `also` are short names, which are suggested but not listed.
    """
    if value not in valid:
        raise UsageError(f"{name}: {unknown(value, valid, also=also)}")
