"""Mutants that change the operands, arguments or result of a right kernel: mistakes that any kernel may have.

They follow from the declarations of an operation: its dimensions, operands, results and arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from suite.problem.operation import Operation
from validation.mutation import Mutant
from validation.mutation.memory import READINGS, read

Tensors = tuple[torch.Tensor, ...]
Change = Callable[[torch.Tensor], torch.Tensor]
Function = Callable[..., Any]
FIXED = 64
"""A size at which a dimension is fixed."""


def mutants(op: Operation, line: str, load: Callable[[], Function]) -> Iterator[Mutant]:
    """Yield the mutants of an implementation that takes torch tensors. load: returns its function."""
    case = op.case(op.shape_of_sizes({name: sizes[1] for name, sizes in op.covered_sizes().items()}))
    shapes = op.operands(case)

    def mutant(name: str, wrap: Callable[[Function], Function]) -> Mutant:
        return Mutant(op.name, line, name, lambda: wrap(load()))

    dtypes = op.operand_dtypes(case)
    for position, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        for name, change in (*operand_changes(shape), *(() if "int" in dtype else number_changes())):
            yield mutant(f"operand {position}: {name}", partial(_with_operand, position, change))
        other = next((i for i, each in enumerate(shapes) if i != position and len(each) == len(shape)), None)
        if other is not None:
            name = f"operand {position}: strides of operand {other}"
            yield mutant(name, partial(_with_strides, position, other))
    for position, shape in enumerate(op.output_shapes(case)):
        for name, change in result_changes(shape):
            yield mutant(f"result {position}: {name}", partial(_with_result, position, change))
    for name, usual in op.arguments(case).items():
        if name != "precision":
            yield mutant(f"argument {name} ignored", partial(_with_argument, name, usual))
    left_out = {name for family in op.families.values() for name in family.arguments} - op.arguments(case).keys()
    for name in sorted(left_out):
        yield mutant(f"argument {name} ignored", partial(_without_argument, name))


def operand_changes(shape: Sequence[int]) -> Iterator[tuple[str, Change]]:
    yield from ((name, reading) for name, (axes, reading) in READINGS.items() if axes <= len(shape))
    for axis in range(len(shape)):
        for tile in (4, 8, 64):
            yield f"axis {axis}: tail of {tile} left out", partial(_tail, axis, tile)
        yield f"axis {axis}: only the first index", partial(_first, axis)
        yield f"axis {axis}: only the first {FIXED}", partial(_beyond, axis)
        yield f"axis {axis}: odd last one left out", partial(_odd_last, axis)
        for name, condition in SIZES_WRONG.items():
            yield f"axis {axis}: wrong if its size is {name}", partial(_where, axis, condition)


def number_changes() -> Iterator[tuple[str, Change]]:
    """Yield the changes of an operand of floating-point numbers."""
    yield "NaN taken for 0", lambda x: x.nan_to_num(0.0, math.inf, -math.inf)
    yield "infinities made finite", lambda x: x.where(x.isnan(), x.nan_to_num())
    yield "through float16 if bfloat16", lambda x: x.half().to(x.dtype) if x.dtype == torch.bfloat16 else x
    yield "rounded to bfloat16", lambda x: x.bfloat16().to(x.dtype)
    yield "subnormal numbers flushed", lambda x: x.where(x.abs() >= torch.finfo(x.dtype).tiny, 0.0)
    yield "scaled by 1 + 2^-5", lambda x: (x * 1.03125).to(x.dtype)


def result_changes(shape: Sequence[int]) -> Iterator[tuple[str, Change]]:
    for least in (1 << 12, 1 << 16):
        yield f"last elements of more than {least} unwritten", partial(_last_unwritten, least)
    yield "last of a multiple of 64 wrong", partial(_last_of_multiple, 64)
    yield "last of a multiple of 1024 wrong", partial(_last_of_multiple, 1024)
    for axis in range(len(shape)):
        for tile in (4, 8):
            yield f"axis {axis}: tail of {tile} unwritten", partial(_tail, axis, tile)
        yield f"axis {axis}: only the first {FIXED}", partial(_beyond, axis)
    yield "NaN taken for 0", lambda x: x.nan_to_num(0.0, math.inf, -math.inf)
    yield "rounded to bfloat16", lambda x: x.bfloat16().to(x.dtype)
    yield "scaled by 1 + 2^-5", lambda x: (x * 1.03125).to(x.dtype)


SIZES_WRONG: dict[str, Callable[[int], bool]] = {
    "1": lambda size: size == 1,
    "a multiple of 1024": lambda size: size > 0 and size % 1024 == 0,
    "odd": lambda size: size % 2 == 1 and size > 1,
    "above 128": lambda size: size > 128,
}


def _tail(axis: int, tile: int, x: torch.Tensor) -> torch.Tensor:
    size = x.shape[axis]
    return _zeroed(x, axis, size - size % tile) if size > tile else x


def _first(axis: int, x: torch.Tensor) -> torch.Tensor:
    return x.narrow(axis, 0, 1).expand(x.shape) if x.shape[axis] else x


def _beyond(axis: int, x: torch.Tensor) -> torch.Tensor:
    return _zeroed(x, axis, FIXED)


def _odd_last(axis: int, x: torch.Tensor) -> torch.Tensor:
    size = x.shape[axis]
    return _zeroed(x, axis, size - 1) if size % 2 and size > 1 else x


def _where(axis: int, condition: Callable[[int], bool], x: torch.Tensor) -> torch.Tensor:
    return (x.double().flip(axis) * 1.5).to(x.dtype) if condition(x.shape[axis]) else x


def _zeroed(x: torch.Tensor, axis: int, begin: int) -> torch.Tensor:
    if begin >= x.shape[axis]:
        return x
    changed = x.clone()
    changed.narrow(axis, begin, x.shape[axis] - begin).zero_()
    return changed


def _last_unwritten(least: int, x: torch.Tensor) -> torch.Tensor:
    if x.numel() <= least:
        return x
    changed = x.clone()
    changed.view(-1)[-3:] = 0.0
    return changed


def _last_of_multiple(multiple: int, x: torch.Tensor) -> torch.Tensor:
    if not x.numel() or x.numel() % multiple:
        return x
    changed = x.clone()
    changed.view(-1)[-4:] = 0.0
    return changed


def _with_operand(position: int, change: Change, function: Function) -> Function:
    def call(*tensors: torch.Tensor, **arguments: Any) -> Any:
        return function(*(change(x) if i == position else x for i, x in enumerate(tensors)), **arguments)

    return call


def _with_strides(position: int, other: int, function: Function) -> Function:
    def call(*tensors: torch.Tensor, **arguments: Any) -> Any:
        changed = list(tensors)
        changed[position] = read(tensors[position], tensors[other].stride())
        return function(*changed, **arguments)

    return call


def _with_result(position: int, change: Change, function: Function) -> Function:
    def call(*tensors: torch.Tensor, **arguments: Any) -> Any:
        result = function(*tensors, **arguments)
        if isinstance(result, torch.Tensor):
            return change(result).contiguous()
        return tuple(change(x).contiguous() if i == position else x for i, x in enumerate(result))

    return call


def _with_argument(name: str, value: Any, function: Function) -> Function:
    return lambda *tensors, **arguments: function(*tensors, **{**arguments, name: value})


def _without_argument(name: str, function: Function) -> Function:
    def call(*tensors: torch.Tensor, **arguments: Any) -> Any:
        return function(*tensors, **{key: each for key, each in arguments.items() if key != name})

    return call
