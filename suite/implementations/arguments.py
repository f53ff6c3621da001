"""Compares the signature of a function with the arguments of a case."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


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
