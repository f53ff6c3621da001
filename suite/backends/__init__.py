"""Frameworks, and the implementations found in their folders.

A file here is a framework: `backends/triton.py` defines `BACKEND`. A file in that framework's folder is an
implementation: `triton_kernels/matmul.py` is `triton` of matmul, `triton_kernels/matmul_persistent.py` is
`triton/persistent`. Matching names are the registration; nothing is imported to find them.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from suite import ops
from suite.backends.base import Backend
from suite.device import Device
from suite.op import DTYPES, Case

ROOT = Path(__file__).resolve().parents[2]
CONSTANTS = ("VENDOR", "REQUIRES", "DETERMINISTIC", "ARITHMETIC", "DTYPES_BEYOND")
TEACHING_ORDER = ("triton", "jax", "cuda", "torch", "numpy")


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
    def backend(self) -> Backend:
        return backend(self.framework)

    def obstacle(self, device: Device, case: Case | None = None) -> tuple[str, str] | None:
        """Why this cannot run on `device`, or not this case: (status, reason), or None. Imports no framework.

        A file from outside is asked whatever the dtype.
        """
        if self.fault:
            return "error", self.fault
        if device.type not in self.backend.devices:
            return "unsupported", f"{self.framework} runs on {' and '.join(self.backend.devices)} only"
        missing = self.backend.missing(device)
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
        """Import the implementation's module. `backend.prepare` must have been called in this process."""
        if self.path is not None:
            from suite import guest

            return guest.load(self)
        module = importlib.import_module(self.module)
        self.backend.equip(module)
        return module

    def function(self) -> Callable[..., Any]:
        """What computes the operation, its module imported; under watch if it is from outside."""
        if self.path is not None:
            from suite import guest

            return guest.Guest(self)
        function: Callable[..., Any] = getattr(self.load(), self.operation)
        return function

    def versions(self) -> str:
        """What it runs on, and which version of a file from outside it is."""
        own = f"{self.path.name} sha256 {self.digest}" if self.path is not None and self.digest else ""
        return ", ".join(filter(None, (self.backend.versions(), own)))

    def visa(self) -> dict[str, Any]:
        """What `find` in another process needs to know of a file from outside; JSON."""
        return {
            "path": str(self.path),
            "framework": self.framework,
            "deterministic": self.deterministic,
            "digest": self.digest,
            "line": self.line,
        }


def backends() -> list[str]:
    """Every framework, by the name of its adapter."""
    found = [m.name for m in pkgutil.iter_modules(__path__) if m.name != "base" and not m.name.startswith("_")]
    rank = {name: position for position, name in enumerate(TEACHING_ORDER)}
    return sorted(found, key=lambda name: (rank.get(name, len(rank)), name))


@cache
def backend(name: str) -> Backend:
    found = importlib.import_module(f"suite.backends.{name}").BACKEND
    assert isinstance(found, Backend)
    return found


@cache
def implementations(operation: str) -> tuple[Implementation, ...]:
    """Every implementation of `operation`, framework by framework, the plain one before its variants."""
    found = []
    for framework in backends():
        folder = backend(framework).folder
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
