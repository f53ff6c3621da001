"""Frameworks, and the implementations found in their folders.

A file here is a framework: `backends/triton.py` defines `BACKEND`. A file in that framework's folder is an
implementation: `triton_kernels/matmul.py` is `triton` of matmul, `triton_kernels/matmul_persistent.py` is
`triton/persistent`. Matching names are the registration; nothing is imported to find them.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from suite import ops
from suite.backends.base import Backend
from suite.device import Device

ROOT = Path(__file__).resolve().parents[2]
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

    @property
    def backend(self) -> Backend:
        return backend(self.framework)

    def obstacle(self, device: Device) -> tuple[str, str] | None:
        """Why this cannot run on `device`: (status, reason), or None. Imports no framework."""
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
        return None

    def load(self) -> ModuleType:
        """Import the implementation's module. `backend.prepare` must have been called in this process."""
        return importlib.import_module(self.module)


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


def implementations(operation: str) -> list[Implementation]:
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
                )
            )
    return found


def operation_of(stem: str) -> str | None:
    """The operation a file name belongs to: the longest one that is the name or begins it before an underscore."""
    matches = [name for name in ops.names() if stem == name or stem.startswith(name + "_")]
    return max(matches, key=len, default=None)


def _constants(path: Path) -> dict[str, str]:
    """String constants VENDOR and REQUIRES at module level, read without importing the module."""
    constants: dict[str, str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            constants |= {name: str(ast.literal_eval(node.value))} if name in ("VENDOR", "REQUIRES") else {}
    return constants
