"""Dataclasses as JSON and back. Every field is checked against its annotation; a dataclass carries its class's name.

Annotations may be bool, int, float, str, None, an Enum, a Literal, a dataclass, `tuple[...]`, `Mapping[str, ...]`, and
unions of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from reprlib import repr
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from suite.core.errors import WorkerError

TAG = "class"
"""The key of a JSON object that names its dataclass: a keyword, which no field can be called."""


class ProtocolError(WorkerError):
    """JSON that does not have the form its dataclass declares: the text says where, and what was expected."""


def to_json(value: Any) -> Any:
    """`value` in what `json.dumps` takes: dataclasses become tagged dicts, tuples become lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {TAG: type(value).__name__} | {each.name: to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def from_json(expected: Any, data: Any, where: str = "message") -> Any:
    """The inverse of `to_json`, for a value whose annotation is `expected`.

    Raises `ProtocolError` for an unknown field, a missing one, or a value of another type. `where` names the value in
    that message.
    """
    arguments = get_args(expected)
    match get_origin(expected):
        case origin if origin is Union or origin is UnionType:
            return _one_of(arguments, data, where)
        case origin if origin is Literal:
            return data if data in arguments and type(data) in map(type, arguments) else _refuse(expected, data, where)
        case origin if origin is tuple:
            return _tuple(arguments, data, where)
        case origin if origin is not None:
            return _mapping(arguments[1], data, where)
    if is_dataclass(expected):
        return _dataclass(expected, data, where)
    if isinstance(expected, type) and issubclass(expected, Enum):
        known = {member.value: member for member in expected}
        return known[data] if isinstance(data, str | int) and data in known else _refuse(expected, data, where)
    if type(data) is expected or (expected is float and type(data) is int):
        return data
    return _refuse(expected, data, where)


def _one_of(members: tuple[Any, ...], data: Any, where: str) -> Any:
    """A dataclass is chosen by its tag; of other members the first that fits."""
    classes = [member for member in members if is_dataclass(member)]
    if isinstance(data, dict) and classes:
        tag = data.get(TAG)
        for member in classes:
            if member.__name__ == tag:  # type: ignore[union-attr]
                return _dataclass(member, data, where)
        names = ", ".join(member.__name__ for member in classes)  # type: ignore[union-attr]
        raise ProtocolError(f"{where}: {TAG} is {repr(tag)}; expected one of {names}")
    for member in members:
        try:
            return from_json(NoneType if member is None else member, data, where)
        except ProtocolError:
            continue
    raise ProtocolError(f"{where}: got {repr(data)}; expected {' | '.join(map(_name, members))}")


def _tuple(members: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise ProtocolError(f"{where}: got {repr(data)}; expected a list")
    if members[-1] is ...:
        members = (members[0],) * len(data)
    if len(members) != len(data):
        raise ProtocolError(f"{where}: got {len(data)} items; expected {len(members)}")
    return tuple(
        from_json(each, item, f"{where}[{i}]") for i, (each, item) in enumerate(zip(members, data, strict=True))
    )


def _mapping(member: Any, data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ProtocolError(f"{where}: got {repr(data)}; expected an object")
    return {name: from_json(member, item, f"{where}[{name!r}]") for name, item in data.items()}


def _dataclass(expected: Any, data: Any, where: str) -> Any:
    name, hints = expected.__name__, _hints(expected)
    if not isinstance(data, dict) or data.get(TAG) != name:
        return _refuse(expected, data, where)
    for complaint, wrong in (
        ("unknown field", sorted(data.keys() - hints.keys() - {TAG})),
        ("missing field", sorted(hints.keys() - data.keys())),
    ):
        if wrong:
            raise ProtocolError(f"{where}: {complaint} {', '.join(wrong)} of {name}")
    return expected(**{field: from_json(hint, data[field], f"{name}.{field}") for field, hint in hints.items()})


@cache
def _hints(expected: Any) -> dict[str, Any]:
    hints = get_type_hints(expected)
    return {each.name: hints[each.name] for each in fields(expected)}


def _refuse(expected: Any, data: Any, where: str) -> Any:
    raise ProtocolError(f"{where}: got {repr(data)}; expected {_name(expected)}")


def _name(expected: Any) -> str:
    return expected.__name__ if isinstance(expected, type) else str(expected)
