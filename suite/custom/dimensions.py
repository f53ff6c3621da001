"""The dimensions of a problem: the integers that its file assigns as literals at module level.

batch_size = 16                  batch_size
M = 1024 * 2                     M: an expression of numbers is a literal
height, width = 224, 224         height and width
shape = (channels, 32)           shape_1, the item that is a literal
groups = channels                none: groups follows channels

A size replaces its literal in the syntax tree, so that all later lines compute with it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import Any

MAX_SIZE = 2**62
"""Sizes are smaller: a literal such as 2**1000 is none."""
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Pow, ast.LShift, ast.USub)


def literals(tree: ast.Module) -> dict[str, int]:
    """The dimensions of a file and their sizes, in the order of their first assignment; the last literal counts."""
    return {name: value for statement in tree.body for name, _, value in _assigned(statement)}


def with_sizes(tree: ast.Module, sizes: Mapping[str, int]) -> ast.Module:
    """The tree with the literals of the dimensions in `sizes` replaced."""
    body = [one for statement in tree.body for one in _one_target(statement)]
    nodes = {id(node): sizes[name] for statement in body for name, node, _ in _assigned(statement) if name in sizes}

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if id(node) not in nodes:
                return self.generic_visit(node)
            return ast.copy_location(ast.Constant(nodes[id(node)]), node)

    module = ast.Module([Replace().visit(statement) for statement in body], tree.type_ignores)
    return ast.fix_missing_locations(module)


def _one_target(statement: ast.stmt) -> list[ast.stmt]:
    """`a = b = 8` as `a = 8` and `b = 8`, so that each name has a literal of its own; any other statement as it is."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) == 1 or not any(_assigned(statement)):
        return [statement]
    parts = [ast.Assign([target], copy.deepcopy(statement.value)) for target in statement.targets]
    return [ast.copy_location(each, statement) for each in parts]


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr, int]]:
    """The name, the expression and the value of each literal that a statement assigns."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from _pairs(statement.target, statement.value)
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _pairs(target, statement.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr, int]]:
    """The literals of one assignment: of a name, of names to a sequence, or of a name to the items of a sequence."""
    items = value.elts if isinstance(value, ast.Tuple | ast.List) else None
    if isinstance(target, ast.Tuple | ast.List):
        if items is not None and len(items) == len(target.elts):
            for each, item in zip(target.elts, items, strict=True):
                yield from _pairs(each, item)
    elif isinstance(target, ast.Name):
        named = [(target.id, value)] if items is None else [(f"{target.id}_{i}", e) for i, e in enumerate(items)]
        for name, node in named:
            if (size := _literal(node)) is not None:
                yield name, node, size


def _literal(node: ast.expr) -> int | None:
    """The value of an expression of whole numbers that is a size; None for any other expression."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant):
            if type(each.value) is not int:
                return None
        elif not isinstance(each, (ast.BinOp, ast.UnaryOp, *OPERATORS)):
            return None
    try:
        value = eval(compile(ast.Expression(node), "<dimension>", "eval"), {"__builtins__": {}})
    except (ArithmeticError, ValueError):
        return None
    return value if type(value) is int and 0 <= value < MAX_SIZE else None
