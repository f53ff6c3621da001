"""An implementation: it makes one row of the table for each case."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from suite import frameworks, ops
from suite.core.package import install_command
from suite.frameworks.base import Adapter
from suite.hardware.device import Device
from suite.implementations import failure
from suite.implementations.identity import Reference
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.problem.source import Source

if TYPE_CHECKING:
    from torch import Tensor

Obstacle = tuple[str, str]
"""Status and reason of a row whose implementation cannot run."""


@dataclass(frozen=True)
class Implementation:
    """One implementation of one operation, known from its file name and the literal constants of its file."""

    operation: str
    name: str
    framework: str
    module: str
    """Dotted name by which it is imported: `triton_kernels.matmul.persistent`."""
    vendor: str | None = None
    """The vendor library that it calls (`VENDOR`); None for a kernel of the tree."""
    requires: str | None = None
    """`cuda`, or the least compute capability, such as `sm_90` (`REQUIRES`)."""
    deterministic: bool = False
    """True if the file claims that equal inputs give equal bits in every call (`DETERMINISTIC = True`)."""
    arithmetic: str | None = None
    """Products that replace one float32 product, such as `6 x bfloat16` (`ARITHMETIC`); the row's limit follows it."""
    dtypes_beyond: tuple[str, ...] = ()
    """Dtypes that it takes besides those of every implementation (`DTYPES_BEYOND`)."""
    options_beyond: tuple[str, ...] = ()
    """Options of which it takes every value, where others take only the plain one (`OPTIONS_BEYOND`)."""
    source: Source | None = None
    """The file that defines the operation, if it is a user's."""
    peer: str | None = None
    """The public kernel library that it calls, by its name in the package index (`PEER`); None if it calls none."""

    @property
    def adapter(self) -> Adapter:
        return frameworks.get(self.framework)

    @property
    def reference(self) -> Reference:
        """The identity by which another process finds this implementation."""
        return self.name

    def for_case(self, case: Case) -> Implementation:
        """This implementation, whose function will be called on `case`."""
        return self

    @property
    def is_external(self) -> bool:
        """True for an implementation from a user's file (`--with`)."""
        return False

    def obstacle(self, device: Device, case: Case | None = None) -> Obstacle | None:
        """Status and reason if this cannot run on `device`, or not on `case`; None if it can. Imports no framework."""
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
        if self.peer is not None and not is_installed(self.peer):
            return "unavailable", f"{self.peer} is not installed; {install_command('peers')}"
        return None if case is None else self._dtype_obstacle(case) or self._option_obstacle(case)

    def _dtype_obstacle(self, case: Case) -> Obstacle | None:
        dtypes = [*DTYPES, *self.dtypes_beyond]
        if case.dtype in dtypes:
            return None
        return "unsupported", f"takes no {case.dtype}; it takes {', '.join(dtypes)}"

    def _option_obstacle(self, case: Case) -> Obstacle | None:
        given = dict(case.options)
        for option in ops.options(self.operation) if case.source is None else ():
            if option.beyond and option.name in given and option.name not in self.options_beyond:
                return "unsupported", f"has no {option.name}; its cases have {option.name}={option.values[0]}"
        return None

    def load(self) -> ModuleType:
        """Import the implementation's module. `adapter.prepare` must have been called in this process."""
        return importlib.import_module(self.module)

    def function(self) -> Callable[..., Any]:
        """The function that computes the operation, as the checked call runs it. Imports its module."""
        function: Callable[..., Any] = getattr(self.load(), self.operation)
        return function

    def function_for(self, case: Case, inputs: int) -> Callable[..., Any]:
        """`function()` for a case with this number of arrays. Raises `NotImplementedError` if it takes fewer."""
        return self.function()

    def accepted(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The `arguments` of a case that are passed to `function`, a result of `function()`."""
        return dict(arguments)

    def function_to_time(self, function: Callable[..., Any], call: Callable[[], object]) -> Callable[..., Any]:
        """The function to time in place of `function`, a result of `function()`. `call` makes one more call of it."""
        return function

    def configuration(self, tensors: Sequence[Tensor], arguments: Mapping[str, Any]) -> str:
        """The kernels that a call with these operands runs, as the `config` of its module says, and what tuning chose.

        For example `parts count=4; BLOCK_M=64, ..., num_stages=4 (tuned)`. Empty if there is no choice.
        """
        module = self.load()
        config = self.config_function()
        if config is None:
            return self.adapter.configuration(module)
        kernels: str = config(*map(self.adapter.to_native, tensors), **arguments)
        words = [step.split()[0] for step in kernels.split(";") if step.strip()]
        return "; ".join(filter(None, (kernels, self.adapter.configuration(module, words))))

    def config_function(self) -> Callable[..., str] | None:
        """The function `config` of its module, which has the arguments of a call; None if there is none."""
        return getattr(self.load(), "config", None)

    def versions(self) -> str:
        """Versions of the packages that it uses: `torch 2.13.0, triton 3.7.1`."""
        peer = "" if self.peer is None else f"{self.peer} {version(self.peer)}, "
        return peer + self.adapter.versions()

    def describe_error(self, error: BaseException, device_type: str) -> str:
        """An exception of this implementation as one line, with its source line."""
        return failure.describe(error, device_type)

    def remarks(self) -> list[str]:
        """Side effects of its import and of its calls so far, for the row."""
        return []


def is_installed(package: str) -> bool:
    """True if a package is installed. Does not import it."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
