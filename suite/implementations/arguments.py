"""Compares the signature of a function with the arguments of a case."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from suite.implementations import builtin


def definition(operation: str) -> ast.arguments:
    """The parameters of the tree's function for an operation, from its plain torch implementation."""
    tree = ast.parse(builtin.files("torch", operation)[""].read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == operation)
    return found.args


@cache
def defaults(operation: str) -> Mapping[str, Any]:
    """The options of an operation's function that have a default, with it: `{"precision": "ieee"}`."""
    found = definition(operation)
    pairs = zip(found.kwonlyargs, found.kw_defaults, strict=True)
    return {each.arg: ast.literal_eval(default) for each, default in pairs if default is not None}


def missing_options(function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """The named arguments for which `function` has no parameter; none if its signature is not known."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return []
    named = {each.name for each in parameters.values() if each.kind not in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL)}
    return [name for name in arguments if name not in named]


def missing_parameters(function: Callable[..., Any], inputs: int, arguments: Mapping[str, Any]) -> bool:
    """True if `function` lacks parameters for this number of inputs, or a parameter for a named argument.

    False for a function without a known signature.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(*[None] * inputs, **arguments)
    except TypeError:
        return True
    return False
