"""Makes command-line options from the options that operations declare: `--causal/--no-causal`, `--layout VALUE`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from suite import ops
from suite.cli.options import split
from suite.problem.option import Option, Value

PARAMETER = "operation_options"
"""The parameter of a command that receives the values by name of option."""
NONE_GIVEN: Mapping[str, tuple[Value, ...]] = {}


def declared() -> dict[str, list[tuple[str, Option]]]:
    """The operations that have each option, with their declarations, by name of the option. Imports no operation.

    Raises `TypeError` if one operation declares a switch and another one declares values under the same name.
    """
    found: dict[str, list[tuple[str, Option]]] = {}
    for operation in ops.names():
        for option in ops.options(operation):
            found.setdefault(option.name, []).append((operation, option))
    for name, having in found.items():
        if len({option.is_switch for _, option in having}) > 1:
            raise TypeError(f"option {name!r} is a switch of some operations and has values in others")
    return found


def with_operation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter PARAMETER by one option of the command line for each declared option.

    The command receives them as one mapping, {"causal": (True,), "layout": ("nt",)}, without options not given.
    """
    options = declared()

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in options}
        values = {name: _values(value) for name, value in given.items() if value is not None}
        command(**arguments, **{PARAMETER: values})

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name == PARAMETER:
            parameters += [_parameter(name, having) for name, having in options.items()]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _values(given: Value | list[str]) -> tuple[Value, ...]:
    return split(given) if isinstance(given, list) else (given,)


def _parameter(name: str, having: list[tuple[str, Option]]) -> inspect.Parameter:
    option = having[0][1]
    operations: dict[str, list[str]] = {}
    for operation, each in having:
        operations.setdefault(each.about, []).append(operation)
    abouts = "; ".join(f"{', '.join(names)}: {about}" for about, names in operations.items())
    default = "Default: both." if option.is_switch and option.every else ""
    if not option.is_switch:
        values = dict.fromkeys(str(value) for _, each in having for value in each.values)
        default = f"Values: {option.valid if option.integers else ', '.join(values)}."
    metavar = None if option.is_switch else "VALUE"
    information = typer.Option(option.flag, metavar=metavar, help=f"{abouts}. {default}".strip())
    kind = bool if option.is_switch else list[str]
    annotation = Annotated[kind | None, information]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
