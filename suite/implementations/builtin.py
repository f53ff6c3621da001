"""Implementations, found in the folders of their frameworks.

A file in a framework's folder is an implementation: `triton_kernels/matmul.py` is `triton` of matmul,
`triton_kernels/matmul_persistent.py` is `triton/persistent`. Matching names are the registration; nothing is imported.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from suite import frameworks, ops
from suite.core.paths import ROOT
from suite.frameworks.base import Adapter
from suite.hardware.device import Device
from suite.numerics.formats import DTYPES
from suite.problem.case import Case

CONSTANTS = ("VENDOR", "REQUIRES", "DETERMINISTIC", "ARITHMETIC", "DTYPES_BEYOND")


@dataclass(frozen=True)
class Implementation:
    """One line of the table for one operation, known from its file name and its literal constants."""

    operation: str
    name: str
    framework: str
    module: str
    vendor: str | None
    requires: str | None
    deterministic: bool = False
    """Whether the file claims that the same inputs give the same bits, call after call (`DETERMINISTIC = True`)."""
    arithmetic: str | None = None
    """What float32 products are made of where that is not float32, for the limit: `6 x bfloat16` (`ARITHMETIC`)."""
    dtypes_beyond: tuple[str, ...] = ()
    """Dtypes it takes beside those that all take (`DTYPES_BEYOND`)."""
    path: Path | None = None
    """A file from outside the tree, which `--with` named; `module` is empty then."""
    digest: str = ""
    """Which version of that file."""
    line: int | None = None
    """Where that file defines the operation."""
    fault: str = ""
    """What keeps that file from being used at all."""

    @property
    def adapter(self) -> Adapter:
        return frameworks.get(self.framework)

    def obstacle(self, device: Device, case: Case | None = None) -> tuple[str, str] | None:
        """Why this cannot run on `device`, or not this case: (status, reason), or None. Imports no framework.

        A file from outside is asked whatever the dtype.
        """
        if self.fault:
            return "error", self.fault
        if device.type not in self.adapter.devices:
            return "unsupported", f"{self.framework} runs on {' and '.join(self.adapter.devices)} only"
        missing = self.adapter.missing(device)
        if missing is not None:
            return "unavailable", missing
        if self.requires is not None and device.type != "cuda":
            return "unsupported", f"needs an NVIDIA GPU ({self.requires}); this is a CPU"
        if self.requires is not None and self.requires.startswith("sm_"):
            needed = divmod(int(self.requires.removeprefix("sm_")), 10)
            if device.capability < needed:
                actual = ".".join(map(str, device.capability))
                return "unsupported", f"needs compute capability {needed[0]}.{needed[1]}; this device has {actual}"
        if case is not None and self.path is None and case.dtype not in (*DTYPES, *self.dtypes_beyond):
            return "unsupported", f"takes no {case.dtype}; it takes {', '.join([*DTYPES, *self.dtypes_beyond])}"
        return None

    def load(self) -> ModuleType:
        """Import the implementation's module. `adapter.prepare` must have been called in this process."""
        if self.path is not None:
            from suite.implementations.external import module as guest

            return guest.load(self)
        module = importlib.import_module(self.module)
        self.adapter.equip(module)
        return module

    def function(self) -> Callable[..., Any]:
        """What computes the operation, its module imported; under watch if it is from outside."""
        if self.path is not None:
            from suite.implementations.external import module as guest

            return guest.Guest(self)
        function: Callable[..., Any] = getattr(self.load(), self.operation)
        return function

    def versions(self) -> str:
        """What it runs on, and which version of a file from outside it is."""
        own = f"{self.path.name} sha256 {self.digest}" if self.path is not None and self.digest else ""
        return ", ".join(filter(None, (self.adapter.versions(), own)))

    def visa(self) -> dict[str, Any]:
        """What `find` in another process needs to know of a file from outside; JSON."""
        return {
            "path": str(self.path),
            "framework": self.framework,
            "deterministic": self.deterministic,
            "digest": self.digest,
            "line": self.line,
        }


@cache
def implementations(operation: str) -> tuple[Implementation, ...]:
    """Every implementation of `operation`, framework by framework, the plain one before its variants."""
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
                    requires=constants.get("REQUIRES"),
                    deterministic=constants.get("DETERMINISTIC") is True,
                    arithmetic=constants.get("ARITHMETIC"),
                    dtypes_beyond=constants.get("DTYPES_BEYOND", ()),
                )
            )
    return tuple(found)


def find(operation: str, name: str, visas: Mapping[str, Mapping[str, Any]]) -> Implementation:
    """The implementation of that name: one of those from outside, by name in `visas`, or a built-in one."""
    if name in visas:
        visa = {**visas[name], "path": Path(visas[name]["path"])}
        return Implementation(operation=operation, name=name, module="", vendor=None, requires=None, **visa)
    return next(each for each in implementations(operation) if each.name == name)


def operation_of(stem: str) -> str | None:
    """The operation a file name belongs to: the longest one that is the name or begins it before an underscore."""
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
