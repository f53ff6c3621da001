"""Parses `--shape`.

    M=512,N=512,K=1024           one shape, the dimensions in any order
    M=N=K=512                    several dimensions of one size
    M=512,N=512,K=1024,4096      a list of sizes: two shapes
    M=2^[10:14],N=512,K=512      powers of two from 2^10 to 2^14; 2^[10:14:2] takes 2^10, 2^12, 2^14
    4096                         the same size in every dimension, for operations that allow it

A part without `=` is one more size of the dimension before it. Several lists give all combinations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from types import MappingProxyType

from suite.core.errors import UsageError
from suite.core.names import did_you_mean

Shape = tuple[int, ...]

MAX_SHAPES = 1000
NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
POWERS = re.compile(r"2\^(?:(\d{1,2})|\[(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?\])")


def parse(
    text: str,
    operation: str,
    dims: tuple[str, ...],
    *,
    is_square: bool,
    defaults: Mapping[str, int] = MappingProxyType({}),
    options: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, int]]:
    """Return the shapes that a text names, each as {"M": 512, ...} in the order of `dims`.

    is_square: a size alone is the size of every dimension. defaults: sizes of dimensions that the text leaves out.
    options: the flag of each option, for the refusal of one that is given as a dimension. Raises `UsageError` that says
    what is missing, unknown, given twice or not a size.
    """
    example = ",".join(f"{dim}=512" for dim in dims)
    groups = _groups(text, operation, dims, example, is_square=is_square)
    found = [name for names, _ in groups for name in names]
    for name in found:
        if name in options:
            raise UsageError(f"--shape {text!r}: {name} is an option, not a dimension; give {options[name]}")
        if name not in dims:
            near = did_you_mean(name, dims)
            raise UsageError(f"--shape {text!r}: unknown dimension {name!r}; {operation} has {', '.join(dims)}{near}")
        if found.count(name) > 1:
            raise UsageError(f"--shape {text!r}: dimension {name} is given twice")
    sizes = [[size for value in values for size in _sizes(text, names[0], value, example)] for names, values in groups]
    missing = [dim for dim in dims if dim not in found and dim not in defaults]
    if missing:
        raise UsageError(f"--shape {text!r}: missing {', '.join(missing)}; {operation} takes e.g. {example}")
    shapes: list[dict[str, int]] = []
    for chosen in product(*sizes):
        if len(shapes) == MAX_SHAPES:
            raise UsageError(f"--shape {text!r}: more than {MAX_SHAPES} shapes; give shorter lists")
        by_name = {name: size for (names, _), size in zip(groups, chosen, strict=True) for name in names}
        shapes.append({dim: by_name.get(dim, defaults.get(dim, 0)) for dim in dims})
    return shapes


def is_size(value: str) -> bool:
    """True for a number, a power of two, or a range of powers."""
    return bool(NUMBER.fullmatch(value) or POWERS.fullmatch(value))


def _groups(
    text: str, operation: str, dims: tuple[str, ...], example: str, *, is_square: bool
) -> list[tuple[list[str], list[str]]]:
    """Split `M=N=512,K=1,2` to [(["M", "N"], ["512"]), (["K"], ["1", "2"])]."""
    groups: list[tuple[list[str], list[str]]] = []
    for part in text.split(","):
        *names, value = (piece.strip() for piece in part.split("="))
        if names:
            groups.append((names, [value]))
        elif groups:
            groups[-1][1].append(value)
        elif is_square and re.match(r"[\d+-]", value) and "x" not in value:
            groups.append((list(dims), [value]))
        else:
            alone = f"; {operation} takes no size alone" if value.isdecimal() else ""
            given = repr(text) if part == text else f"{text!r}: {part!r}"
            raise UsageError(f"--shape {given} is not DIM=SIZE{alone}; {operation} takes e.g. {example}")
    return groups


def _sizes(text: str, name: str, value: str, example: str) -> list[int]:
    """Return the sizes of one item of a list: a number, a power of two, or a range of powers."""
    if powers := POWERS.fullmatch(value):
        single, first, last, step = powers.groups()
        low, high = (int(single), int(single)) if single else (int(first), int(last))
        if low > high or high > 62 or step == "0":
            raise UsageError(
                f"--shape {text!r}: {name}={value}: the powers must ascend and be at most 62, as 2^[10:14]"
            )
        return [2**power for power in range(low, high + 1, int(step or 1))]
    if not NUMBER.fullmatch(value):
        raise UsageError(f"--shape {text!r}: {name}={value!r} is not a whole number; e.g. {example}")
    if int(value) < 0:
        raise UsageError(f"--shape {text!r}: {name}={value} must be at least 0")
    return [int(value)]
