"""Reading `--shape`."""

from __future__ import annotations

import re

from suite.core.errors import UsageError

Shape = tuple[int, ...]


def parse(text: str, operation: str, dims: tuple[str, ...]) -> dict[str, int]:
    """`M=512,N=512,K=512` -> {"M": 512, ...}, in the order of `dims`.

    Raises `UsageError` that says what is missing, unknown, given twice or not a size.
    """
    example = ",".join(f"{dim}=512" for dim in dims)
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UsageError(f"--shape {text!r}: {part!r} is not DIM=SIZE; {operation} takes e.g. {example}")
        if name not in dims:
            raise UsageError(f"--shape {text!r}: unknown dimension {name!r}; {operation} has {', '.join(dims)}")
        if name in found:
            raise UsageError(f"--shape {text!r}: dimension {name} is given twice")
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
            raise UsageError(f"--shape {text!r}: {name}={value!r} is not a whole number; e.g. {example}")
        if int(value) < 0:
            raise UsageError(f"--shape {text!r}: {name}={value} must be at least 0")
        found[name] = int(value)
    missing = [dim for dim in dims if dim not in found]
    if missing:
        raise UsageError(f"--shape {text!r}: missing {', '.join(missing)}; {operation} takes e.g. {example}")
    return {dim: found[dim] for dim in dims}
