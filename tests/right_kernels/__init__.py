"""Right kernels in the styles that people publish: none of them may be refused.

Each module has the kernels of one framework. A function is called `<operation>__<style>`; it has the signature of the
operation. `kernels()` lists them. `cuda/` has files for `--with`, each with launchers of one or more operations:
`cuda_files()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from suite.external import module
from suite.external.source import read
from suite.frameworks.cuda import ADAPTER


@dataclass(frozen=True)
class Right:
    """One right kernel."""

    operation: str
    style: str
    framework: str
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.operation}-{self.style}"


def kernels(module: ModuleType, framework: str) -> Iterator[Right]:
    """The kernels of a module, in their order."""
    for name, function in vars(module).items():
        operation, _, style = name.partition("__")
        if operation and style and not operation.startswith("_") and callable(function):
            yield Right(operation, style, framework, function)


def cuda_files() -> Iterator[Right]:
    """The launchers of the files in `cuda/`, each called by the launcher of the plain CUDA kernel, as by `--with`."""
    for path in sorted(Path(__file__).with_name("cuda").glob("*.cu")):
        source = read(path)
        for operation in source.lines:
            yield Right(operation, path.stem, "cuda", partial(_called, path, source.digest, operation))


def _called(path: Path, digest: str, operation: str, *inputs: Any, **arguments: Any) -> Any:
    loaded = module.load(path, digest, operation, ADAPTER, own=False)
    return getattr(loaded.module, operation)(*inputs, **arguments)
