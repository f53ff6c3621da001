"""Finds the implementations of the tree by file name, without importing them: matching names are the registration.

`<folder>.<operation>` is a module, a file or a package: the framework's plain implementation. In a package,
`<operation>/<variant>.py` is called `<framework>/<variant>`. Names that begin with an underscore are helpers.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from suite import frameworks
from suite.core.package import qualified
from suite.core.paths import ROOT
from suite.implementations.implementation import Implementation

CONSTANTS = ("VENDOR", "PEER", "REQUIRES", "DETERMINISTIC", "ARITHMETIC", "DTYPES_BEYOND", "OPTIONS_BEYOND")


@cache
def implementations(operation: str) -> tuple[Implementation, ...]:
    """Every implementation of `operation`, by framework, the plain one before its variants."""
    found = []
    for framework in frameworks.names():
        for variant, path in files(framework, operation).items():
            constants = _constants(path)
            found.append(
                Implementation(
                    operation=operation,
                    name=f"{framework}/{variant}" if variant else framework,
                    framework=framework,
                    module=".".join(filter(None, (qualified(frameworks.get(framework).folder), operation, variant))),
                    vendor=constants.get("VENDOR"),
                    peer=constants.get("PEER"),
                    requires=constants.get("REQUIRES"),
                    deterministic=constants.get("DETERMINISTIC") is True,
                    arithmetic=constants.get("ARITHMETIC"),
                    dtypes_beyond=constants.get("DTYPES_BEYOND", ()),
                    options_beyond=constants.get("OPTIONS_BEYOND", ()),
                )
            )
    return tuple(found)


def files(framework: str, operation: str) -> dict[str, Path]:
    """The files of a framework's implementations of `operation` by variant. The plain one, "", comes first."""
    place = ROOT / frameworks.get(framework).folder / operation
    plain = [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]
    variants = {path.stem: path for path in sorted(place.glob("[!_]*.py"))}
    return {"": plain[0], **variants} if plain else variants


def find(operation: str, name: str) -> Implementation:
    """The implementation of `operation` with that name. Raises `LookupError` if there is none."""
    for each in implementations(operation):
        if each.name == name:
            return each
    raise LookupError(f"{operation} has no implementation {name!r}")


def _constants(path: Path) -> dict[str, Any]:
    """The literal CONSTANTS at module level, read without importing the module."""
    constants: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            constants |= {name: ast.literal_eval(node.value)} if name in CONSTANTS else {}
    return constants
