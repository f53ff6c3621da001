"""The operations, one file each: `ops/matmul.py` defines `OP`, and the rest of the suite finds it by name.

Names, ranks and options are read from the files as literals, so that the command line imports no framework.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from suite.core.errors import UsageError
from suite.core.names import did_you_mean
from suite.core.package import command
from suite.core.text import one_line
from suite.problem.option import Option

if TYPE_CHECKING:
    from suite.problem.operation import Operation
    from suite.problem.source import Source

GROUPS = ("elementwise", "rows", "losses", "products", "windows", "attention", "caches", "ranks")
"""Kinds of operations: element by element; rows of matrices; losses of a model; products of matrices, also in a
recurrence; windows of images; attention; its caches; several devices."""
OTHER = "other"
UNRANKED = 1_000_000
"""Rank of an operation that declares none: after all others."""


@cache
def names() -> tuple[str, ...]:
    """Return the names of all operations in the order of their `rank`, without importing them."""
    return tuple(sorted(_files(), key=lambda name: (rank(name), name)))


@cache
def _files() -> frozenset[str]:
    """Return the names of all operations. Their ranks take parsing all files, which a worker does not need."""
    return frozenset(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def rank(name: str) -> int:
    """Return the operation's `rank`, a literal of its class."""
    return int(_declaration(name, "rank", UNRANKED))


def alone() -> tuple[str, ...]:
    """Return the names of the operations that one process computes."""
    return tuple(name for name in names() if not over_ranks(name))


def over_ranks(name: str) -> bool:
    """Return the operation's `over_ranks`, a literal of its class."""
    return bool(_declaration(name, "over_ranks", False))


def group(name: str) -> str:
    """Return the operation's `group`, a literal of its class: the kind of its work, one of GROUPS, or OTHER."""
    return str(_declaration(name, "group", OTHER))


def by_group(given: Sequence[str]) -> dict[str, list[str]]:
    """Return the groups of these operations in the order of GROUPS, each with its operations in the order given."""
    found = {each: [name for name in given if group(name) == each] for each in (*GROUPS, OTHER)}
    return {each: names for each, names in found.items() if names}


def options(name: str) -> tuple[Option, ...]:
    """Return the operation's `options`: calls of `Option` with literals."""
    return tuple(_declaration(name, "options", ()))


def get(name: str) -> Operation:
    """Return the operation called `name`. Raises `UsageError` with all names, and those nearest to it."""
    from suite.problem.operation import Operation

    if name not in _files():
        raise unknown(name)
    op = importlib.import_module(f"{__name__}.{name}").OP
    if not isinstance(op, Operation) or op.name != name:
        raise TypeError(f"suite/ops/{name}.py must define OP, an Operation named {name!r}")
    return op


class HasOperation(Protocol):
    """Anything that belongs to an operation: a case or an implementation."""

    @property
    def operation(self) -> str: ...
    @property
    def source(self) -> Source | None: ...


def operation(owner: HasOperation) -> Operation:
    """Return the operation of a case or an implementation, from this package or from a user's file."""
    if owner.source is None:
        return get(owner.operation)
    from suite import custom

    return custom.find(owner.source)


def matching(pattern: str) -> tuple[str, ...]:
    """Return the operations that match a name, `all` or a pattern such as `mat*`. Raises `UsageError` if none does."""
    found = names() if pattern == "all" else tuple(name for name in names() if fnmatchcase(name, pattern))
    if not found:
        raise unknown(pattern)
    return found


def unknown(name: str) -> UsageError:
    """Return the error for a name or pattern that matches no operation."""
    near = did_you_mean(name, names())
    known = f"{near} `{command()} list` shows all" if near else f"; there are {', '.join(names())}, or all"
    return UsageError(f"unknown operation {one_line(name)!r}{known}")


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")


@cache
def _tree(name: str) -> ast.Module:
    return ast.parse(_text(name), filename=f"{name}.py")


@cache
def _declaration(name: str, attribute: str, default: Any) -> Any:
    """Return the value of a class attribute in the operation's file without running it. Raises `TypeError`.

    Parsing a file takes 4 ms: only those are parsed that assign to the name twice, or over several lines.
    """
    found = re.findall(rf"^ {{4}}{attribute}\b[^=\n]*=(?!=)[ \t]*(.*)", _text(name), re.MULTILINE)
    if not found:
        return default
    if len(found) == 1:
        with contextlib.suppress(SyntaxError, ValueError):
            return _literal(ast.parse(found[0], mode="eval").body)
    return _parsed_declaration(name, attribute, default)


def _parsed_declaration(name: str, attribute: str, default: Any) -> Any:
    for node in (node for each in _tree(name).body if isinstance(each, ast.ClassDef) for node in each.body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if value is not None and any(isinstance(each, ast.Name) and each.id == attribute for each in targets):
            try:
                return _literal(value)
            except ValueError as error:
                raise TypeError(f"suite/ops/{name}.py:{node.lineno}: {attribute} must be literals") from error
    return default


def _literal(node: ast.expr) -> Any:
    """Evaluate a literal, a tuple of literals, or a call of `Option` with literals."""
    if isinstance(node, ast.Tuple):
        return tuple(map(_literal, node.elts))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == Option.__name__:
        keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
        return Option(*map(ast.literal_eval, node.args), **keywords)
    return ast.literal_eval(node)
