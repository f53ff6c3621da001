"""Mutants that change one place in the source: an operator, a constant, a bound, a condition, a rounding."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from validation.mutation import Mutant

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mod,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


def mutants(operation: str, line: str, module: ModuleType) -> Iterator[Mutant]:
    """Yield the mutants of the functions in a module's file. Checks that raise stay as they are."""
    path = Path(str(module.__file__))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    count: Counter[str] = Counter()
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for place in _places(function):
            for number, changed in enumerate(_changes(place)):
                name = f"{function.name}: {ast.unparse(place)} -> {ast.unparse(changed)}".replace("\n", " ")
                count[name] += 1
                text = name if count[name] == 1 else f"{name} ({count[name]})"
                position = list(ast.walk(tree)).index(place)
                yield Mutant(operation, line, text, partial(_load, module, tree, position, number, operation))


def _places(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the expressions and statements of a function's body that compute something on a CPU."""
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Constant):
            continue  # a docstring, or a check of the arguments
        skipped: set[int] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Raise) or (isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise)):
                skipped |= {id(each) for each in ast.walk(node)}
            if isinstance(node, ast.AnnAssign):
                skipped |= {id(each) for each in ast.walk(node.annotation)}
            if isinstance(node, ast.keyword) and node.arg in ("axis", "dim", "keepdims", "keepdim", "strict", "dtype"):
                skipped |= {id(each) for each in ast.walk(node)}
            if id(node) not in skipped:
                yield node
        if _leaves_on_a_cpu(statement):
            return


def _leaves_on_a_cpu(statement: ast.stmt) -> bool:
    """True for `if not x.is_cuda: ... return`: only a GPU runs what follows."""
    match statement:
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr="is_cuda")), body=[*_, ast.Return()]):
            return True
    return False


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the replacements of a node."""
    match node:
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield ast.BinOp(node.left, OPERATORS[type(op)](), node.right)
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value * 1.5 if value else 1.0)
        case ast.Slice(upper=ast.expr() as upper):
            yield ast.Slice(node.lower, ast.BinOp(upper, ast.Sub(), ast.Constant(1)), node.step)
        case ast.Call(func=ast.Attribute(attr="max" | "amax")):
            yield ast.parse(f"{ast.unparse(node)}.clip(0)", mode="eval").body
        case ast.Call(func=ast.Attribute(attr="astype" | "float")):
            half = "astype(np.float16).astype(np.float32)" if node.func.attr == "astype" else "half().float()"
            yield ast.parse(f"{ast.unparse(node)}.{half}", mode="eval").body
        case ast.Call(func=ast.Name(id="slice") | ast.Name(id="min") | ast.Name(id="max"), args=[*_, last]):
            yield ast.Call(node.func, [*node.args[:-1], ast.BinOp(last, ast.Sub(), ast.Constant(1))], node.keywords)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.If():
            yield ast.If(ast.Constant(False), node.body, node.orelse)
        case ast.AugAssign():
            yield ast.Pass()


def _load(module: ModuleType, tree: ast.Module, position: int, number: int, name: str) -> Callable[..., Any]:
    """Return the function of a copy of the module in which one node is replaced."""
    changed = copy.deepcopy(tree)
    place = list(ast.walk(changed))[position]
    replacement = list(_changes(place))[number]

    class Replaced(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return replacement if node is place else super().visit(node)

    whole = ast.fix_missing_locations(Replaced().visit(changed))
    scope: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(whole, f"<mutant of {module.__name__}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
