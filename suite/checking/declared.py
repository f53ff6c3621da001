"""Names of operands and of their axes, from what an operation declares."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from suite.core.errors import SuiteError
from suite.implementations import builtin
from suite.problem.case import Case
from suite.problem.operation import Operation
from suite.problem.shape import Shape

SIZES = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097)
"""Different sizes for the dimensions of a case, which tell the dimension of each axis."""


def operand_names(op: Operation, count: int) -> tuple[str, ...]:
    """Return the names of the first `count` arguments, from the torch implementation or a user's signature."""
    if op.source is None:
        found = _parameters(op.name)[:count]
    else:  # numbers may stand between a user's operands, unless there are as many parameters as operands
        last = op.signature.rpartition("(")[2].rstrip(")")
        found = tuple(name for name in re.split(r"[,*/ ]+", last) if name.isidentifier())
    return found if len(found) == count else tuple(f"argument {i + 1}" for i in range(count))


@cache
def _parameters(operation: str) -> tuple[str, ...]:
    path = builtin.files("torch", operation).get("")
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path else iter(())
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == operation]
    return tuple(each.arg for each in functions[0].args.args) if functions else ()


def axis_names(op: Operation, case: Case) -> tuple[tuple[str, ...], ...]:
    """Return the dimension of each axis of each operand; `axis 1` where there is none."""
    return _named(op, case, op.operands(case), lambda other: op.operands(other))


def result_axis_names(op: Operation, case: Case) -> tuple[tuple[str, ...], ...]:
    """Return the dimension of each axis of each result."""
    return _named(op, case, op.output_shapes(case), lambda other: op.output_shapes(other))


def _named(op: Operation, case: Case, shapes: Sequence[Shape], shapes_of: object) -> tuple[tuple[str, ...], ...]:
    assert callable(shapes_of)
    sizes = dict(zip((name for name, _ in case.dims), SIZES, strict=False))
    try:
        probed: Sequence[Shape] = shapes_of(replace(case, dims=tuple(sizes.items())))
    except SuiteError:  # a user's operation knows the shapes of its own cases alone
        sizes, probed = {name: size for name, size in case.dims if size > 1}, shapes
    return tuple(tuple(_dimension(size, axis, sizes) for axis, size in enumerate(shape)) for shape in probed)


def _dimension(size: int, axis: int, sizes: dict[str, int]) -> str:
    same = [name for name, each in sizes.items() if each == size]
    if len(same) == 1:
        return same[0]
    multiple = [f"{size // each} {name}" for name, each in sizes.items() if each in SIZES and size % each == 0]
    return multiple[0] if len(multiple) == 1 else f"axis {axis}"
