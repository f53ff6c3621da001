"""A problem of GPU MODE's reference-kernels: a folder with `task.yml` and `reference.py`.

`reference.py` defines `generate_input(**test)` and `ref_kernel(data)`; a submission defines `custom_kernel(data)`. The
tests of `task.yml` are the cases. A number in a test is a dimension. A text, list or truth value that differs between
tests is one too: its size is its position among the values in the file. The seed of a draw replaces a test's seed.
Inputs keep their types. Where ref_kernel computes in float64, kernels may compute in float32. A call may write to the
tensors that `ref_kernel` writes to, and to tensors of torch.empty or torch.zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from suite.core.errors import UsageError
from suite.custom import task_file
from suite.custom.about import About
from suite.custom.arguments import is_floating
from suite.custom.file import run
from suite.custom.program import CPU, Function, Program, make_cheaply_or
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.problem.source import Source

SEED = "seed"
MISSING = object()


class GpuModeFile(Program):
    """The code of a folder with a problem of GPU MODE."""

    parameters = ("data",)
    kernels_use_float32 = True

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        folder = Path(source.path).parent
        task = (folder / task_file.NAME).read_text(encoding="utf-8")
        if task_file.is_for_several_gpus(task):
            raise UsageError(
                f"{folder.name}: a problem over several GPUs (multi_gpu in {task_file.NAME}) cannot run here"
            )
        task_file.provide_modules(folder, task)
        module = run(source, {})
        generate, kernel = (getattr(module, name, None) for name in ("generate_input", "ref_kernel"))
        if not callable(generate) or not callable(kernel):
            raise UsageError(f"{folder.name}: its reference.py must define generate_input and ref_kernel")
        self._generate: Function = generate
        self._kernel: Function = kernel
        tests = task_file.items(task, "tests")
        if not tests:
            raise UsageError(f"{folder.name}: its {task_file.NAME} has no tests")
        self._name = "".join(letter if letter.isalnum() else "_" for letter in folder.name)
        self._takes_seed = any(SEED in test for test in tests)
        keys = dict.fromkeys(key for test in tests for key in test if key != SEED)
        self._values = {key: _distinct([test.get(key, MISSING) for test in tests]) for key in keys}
        self._dims = tuple(key for key in keys if _is_size(self._values[key]) or len(self._values[key]) > 1)
        self._defaults = tuple(dict.fromkeys(tuple(self._size(key, test) for key in self._dims) for test in tests))

    def about(self) -> About:
        return About(
            name=self._name,
            entry="custom_kernel",
            signature="custom_kernel(data)",
            formula=f"ref_kernel of {self._name}",
            dims=self._dims,
            defaults=self._defaults,
            dtypes=(self._dtype(),),
            beyond=(),
            framework="torch",
        )

    def values(self, case: Case) -> list[Any]:
        given = {key: self._value(key, case) for key in self._values}
        given = {key: value for key, value in given.items() if value is not MISSING}
        if self._takes_seed:
            given[SEED] = int(torch.randint(2**31, (), device=CPU))
        return [self._generate(**given)]

    def reference(self, case: Case, dtype: torch.dtype, device: torch.device) -> Function:
        return self._kernel

    def written(self, case: Case) -> tuple[int, ...]:
        return tuple(sorted({*self.outcome(case).written, *self.pattern(case).blank}))

    def results_in_arguments(self, case: Case) -> tuple[int, ...]:
        return self.outcome(case).written

    def undeclared(self, case: Case) -> list[str]:
        return []

    def result_dtype(self, dtype: str, case: Case, inputs: Collection[str]) -> str:
        """float32 for float64: without an input in float64, the reference uses float64 only for exact sums."""
        return "float32" if dtype == "float64" and "float64" not in inputs else dtype

    def _kept(self, case: Case, given: Sequence[Any]) -> Collection[int]:
        return [i for i, each in enumerate(given) if is_floating(each)]

    def _dtype(self) -> str:
        """The type of the first floating-point input with one of DTYPES; else float32."""
        dims = tuple(zip(self._dims, self._defaults[0], strict=True))
        case = Case(self._name, dims, source=self.source)

        def drawn(device: torch.device) -> list[str]:
            return [str(each.dtype).removeprefix("torch.") for each in self.draw(case, 0, device)]

        return next((each for each in make_cheaply_or(CPU, self.is_small(case), drawn) if each in DTYPES), "float32")

    def _size(self, key: str, test: Mapping[str, Any]) -> int:
        values, value = self._values[key], test.get(key, MISSING)
        return int(value) if _is_size(values) else values.index(value)

    def _value(self, key: str, case: Case) -> Any:
        values = self._values[key]
        if key not in self._dims:
            return values[0]
        if _is_size(values):
            return case[key]
        if case[key] >= len(values):
            raise UsageError(f"{self._name}: {key} is the position of one of {len(values)} values, from 0")
        return values[case[key]]


def _distinct(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(value == each and type(value) is type(each) for each in found):
            found.append(value)
    return found


def _is_size(values: Sequence[Any]) -> bool:
    return all(type(each) is int and each >= 0 for each in values)
