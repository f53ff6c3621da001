"""The implementations of the tree, found by file name without importing them: matching names are the registration.

`triton_kernels/matmul.py` is `triton` of matmul; `triton_kernels/matmul_persistent.py` is `triton/persistent`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from suite import frameworks, ops
from suite.core.paths import ROOT
from suite.implementations.implementation import Implementation

CONSTANTS = ("VENDOR", "PEER", "REQUIRES", "DETERMINISTIC", "ARITHMETIC", "DTYPES_BEYOND")


@cache
def implementations(operation: str) -> tuple[Implementation, ...]:
    """Every implementation of `operation`, by framework, the plain one before its variants."""
    found = []
    for framework in frameworks.names():
        folder = frameworks.get(framework).folder
        for path in sorted((ROOT / folder).glob("*.py")):
            if operation_of(path.stem) != operation:
                continue
            variant = path.stem[len(operation) + 1 :]
            constants = _constants(path)
            found.append(
                Implementation(
                    operation=operation,
                    name=f"{framework}/{variant}" if variant else framework,
                    framework=framework,
                    module=f"{folder}.{path.stem}",
                    vendor=constants.get("VENDOR"),
                    peer=constants.get("PEER"),
                    requires=constants.get("REQUIRES"),
                    deterministic=constants.get("DETERMINISTIC") is True,
                    arithmetic=constants.get("ARITHMETIC"),
                    dtypes_beyond=constants.get("DTYPES_BEYOND", ()),
                )
            )
    return tuple(found)


def find(operation: str, name: str) -> Implementation:
    """The implementation of `operation` with that name. Raises `LookupError` if there is none."""
    for each in implementations(operation):
        if each.name == name:
            return each
    raise LookupError(f"{operation} has no implementation {name!r}")


def operation_of(stem: str) -> str | None:
    """The operation of a file name: the longest operation that equals it or precedes an underscore in it."""
    matches = [name for name in ops.names() if stem == name or stem.startswith(name + "_")]
    return max(matches, key=len, default=None)


def _constants(path: Path) -> dict[str, Any]:
    """The literal CONSTANTS at module level, read without importing the module."""
    constants: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            constants |= {name: ast.literal_eval(node.value)} if name in CONSTANTS else {}
    return constants
