"""A gallery of wrong kernels: small, believable mistakes, each beside the right line that it replaces.

`<framework>_<operation>.py` (with a `.cu` beside it for CUDA) holds one plain kernel and

    MISTAKES       name of a mistake -> what it is, the case that exposes it, and how it must be refused
    make(mistake)  the operation as a function, with that mistake; make("") is the right twin

A mistake is a switch at the place where it is made, which shows the difference between wrong and right:
`tiles = K // BLOCK_K if mistake == "k_tail_dropped" else triton.cdiv(K, BLOCK_K)`. In a .cu the switch is an
argument whose values are in the order of MISTAKES. `test_wrong_kernels.py` checks that every mistake is refused, with
the kind of refusal declared here, and that every right twin passes the same case.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from suite import frameworks, ops
from suite.problem.case import Case

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Wrong:
    """One mistake. about: one line. verdict: first words of the refusal's reason. The rest: a case that exposes it."""

    about: str
    verdict: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    precision: str = "ieee"
    options: Mapping[str, bool | str] = field(default_factory=dict)
    inputs: str = "normal"
    deterministic: bool = False
    """The implementation declares DETERMINISTIC = True."""
    gpu: bool = False
    """It can be made or seen only on a GPU."""


@dataclass(frozen=True)
class Entry:
    """One mistake of one file."""

    framework: str
    operation: str
    mistake: str
    module: ModuleType
    wrong: Wrong

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.operation}-{self.mistake}"

    @property
    def case(self) -> Case:
        wrong = self.wrong
        return ops.get(self.operation).case(
            wrong.shape, wrong.dtype, wrong.precision, inputs=wrong.inputs, **wrong.options
        )

    def make(self, mistake: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self.module.make(mistake)
        return function


def entries() -> list[Entry]:
    """Every mistake of every file whose framework is installed."""
    found = []
    for path in sorted(FOLDER.glob("*_*.py")):
        framework, _, operation = path.stem.partition("_")
        if framework and all(map(importlib.util.find_spec, frameworks.get(framework).packages)):
            module = importlib.import_module(f"wrong_kernels.{path.stem}")
            found += [Entry(framework, operation, name, module, wrong) for name, wrong in module.MISTAKES.items()]
    return found
