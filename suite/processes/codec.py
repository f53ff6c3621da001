"""Dataclasses as JSON and back. Each field is checked against its annotation; a dataclass carries its class's name.

Annotations may be bool, int, float, str, None, a Path, an Enum, a Literal, a dataclass, `tuple[...]`,
`Mapping[str, ...]`, and unions of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from reprlib import repr
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from suite.core.errors import WorkerError

TAG = "class"
"""The key of a JSON object that names its dataclass. No field can have this name, a keyword of Python."""

Reader = Callable[[Any, str], Any]
"""Turns JSON data into a value. The text names the place of the data in the message, for errors."""


class ProtocolError(WorkerError):
    """JSON without the form that its dataclass declares: the text has the place and the expected form."""


def to_json(value: Any) -> Any:
    """`value` as `json.dumps` takes it: dataclasses become tagged dicts, tuples become lists."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    kind: Any = type(value)
    return {TAG: kind.__name__} | {name: to_json(getattr(value, name)) for name in _hints(kind)}


def from_json(expected: Any, data: Any, where: str = "message") -> Any:
    """The inverse of `to_json`, for a value with the annotation `expected`.

    Raises `ProtocolError` for an unknown field, a missing one, or a value of another type. `where` names the value in
    that message.
    """
    return _reader(expected)(data, where)


@cache
def _reader(expected: Any) -> Reader:
    """The reader of values with the annotation `expected`."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Union or origin is UnionType:
        return _union(arguments)
    if origin is Literal:
        return _member(expected, dict(zip(arguments, arguments, strict=True)))
    if origin is tuple:
        return _tuple(arguments)
    if origin is not None:
        return _mapping(_reader(arguments[1]))
    if is_dataclass(expected):
        return _dataclass(expected)
    if isinstance(expected, type) and issubclass(expected, Enum):
        return _member(expected, {member.value: member for member in expected})
    return _path if expected is Path else _scalar(expected)


def _path(data: Any, where: str) -> Path:
    return Path(data) if type(data) is str else _refuse(data, where, "a path")


def _scalar(expected: type) -> Reader:
    accepted = (float, int) if expected is float else (expected,)  # exact types: true is no number

    def read(data: Any, where: str) -> Any:
        return data if type(data) in accepted else _refuse(data, where, expected.__name__)

    return read


def _member(expected: Any, members: Mapping[Any, Any]) -> Reader:
    """Reads a text that names a member of an Enum or a Literal."""
    name = expected.__name__ if isinstance(expected, type) else str(expected)

    def read(data: Any, where: str) -> Any:
        return members[data] if type(data) is str and data in members else _refuse(data, where, name)

    return read


def _union(arguments: tuple[Any, ...]) -> Reader:
    """Reads a dataclass by its tag, and any other value by the first member that fits."""
    dataclasses: list[Any] = [each for each in arguments if is_dataclass(each)]
    classes = {each.__name__: _reader(each) for each in dataclasses}
    others = [_reader(each) for each in arguments if each not in dataclasses]
    expected = " | ".join(getattr(each, "__name__", str(each)) for each in arguments)

    def read(data: Any, where: str) -> Any:
        if isinstance(data, dict) and classes:
            tag = data.get(TAG)
            if not isinstance(tag, str) or tag not in classes:
                raise ProtocolError(f"{where}: {TAG} is {repr(tag)}; expected one of {', '.join(classes)}")
            return classes[tag](data, where)
        for other in others:
            try:
                return other(data, where)
            except ProtocolError:
                continue
        return _refuse(data, where, expected)

    return read


def _tuple(arguments: tuple[Any, ...]) -> Reader:
    """Reads a list: any length for `tuple[X, ...]`, else one item for each argument."""
    variadic = arguments[-1] is ...
    readers = [_reader(each) for each in arguments if each is not ...]

    def read(data: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise ProtocolError(f"{where}: got {repr(data)}; expected a list")
        if not variadic and len(data) != len(readers):
            raise ProtocolError(f"{where}: got {len(data)} items; expected {len(readers)}")
        every = readers * len(data) if variadic else readers
        return tuple(each(item, where) for each, item in zip(every, data, strict=True))

    return read


def _mapping(member: Reader) -> Reader:
    def read(data: Any, where: str) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise ProtocolError(f"{where}: got {repr(data)}; expected an object")
        return {name: member(item, where) for name, item in data.items()}

    return read


def _dataclass(expected: Any) -> Reader:
    """Reads an object that has the class's name and exactly its fields."""
    name = expected.__name__
    readers = {field: (_reader(hint), f"{name}.{field}") for field, hint in _hints(expected).items()}
    keys = readers.keys() | {TAG}

    def read(data: Any, where: str) -> Any:
        if not isinstance(data, dict) or data.get(TAG) != name:
            return _refuse(data, where, name)
        if data.keys() != keys:
            unknown, missing = sorted(data.keys() - keys), sorted(keys - data.keys())
            complaint = f"unknown field {', '.join(unknown)}" if unknown else f"missing field {', '.join(missing)}"
            raise ProtocolError(f"{where}: {complaint} of {name}")
        return expected(**{field: reader(data[field], place) for field, (reader, place) in readers.items()})

    return read


@cache
def _hints(expected: Any) -> dict[str, Any]:
    """The resolved annotations of a dataclass's fields."""
    hints = get_type_hints(expected)
    return {each.name: hints[each.name] for each in fields(expected)}


def _refuse(data: Any, where: str, expected: str) -> Any:
    raise ProtocolError(f"{where}: got {repr(data)}; expected {expected}")
