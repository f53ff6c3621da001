"""The code of a file that defines an operation: it draws inputs, and computes the result in any type."""

from __future__ import annotations

import contextlib
import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch

from suite.core.errors import UsageError
from suite.custom.about import About
from suite.problem.case import Case
from suite.problem.source import Source

Function = Callable[..., Any]
META = torch.device("meta")
T = TypeVar("T")


class Program(ABC):
    """The code of one file."""

    framework = "torch"
    """Framework whose arrays the reference takes: torch or numpy."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._patterns: dict[Any, list[Any]] = {}

    @abstractmethod
    def about(self) -> About:
        """The description of the operation, without facts about cases."""

    @abstractmethod
    def values(self, case: Case) -> list[Any]:
        """The arguments of the call, drawn on torch's default device from its default generator."""

    @abstractmethod
    def function(self, case: Case, dtype: torch.dtype, device: torch.device) -> Function:
        """The reference for arrays of `dtype`. Parameters are rounded to the case's dtype first."""

    def native(self, case: Case) -> Function:
        """The unchanged reference, for arrays of its framework."""
        raise NotImplementedError

    def callable_of(self, entry: Any, case: Case) -> Function:
        """The function to call with the arrays of `case`, made from the `entry` that a kernel's file defines."""
        return self.with_constants(entry, case)

    def stated(self, what: str, case: Case) -> Any:
        """The `flops`, `bytes` or `tolerance` that the file states for a case; None if it states none."""
        return None

    @property
    @abstractmethod
    def parameters(self) -> list[str]:
        """The names of the parameters of the reference."""

    def weights(self, case: Case) -> dict[str, torch.Tensor]:
        """The parameters of the model that the file defines, by name: the tensors that `function` reads, on the CPU."""
        return {}

    def parameter_bytes(self, case: Case) -> int:
        """Bytes that the reference reads besides its inputs."""
        return 0

    # Derived from the methods above

    def draw(self, case: Case, seed: int, device: torch.device) -> list[Any]:
        """The arguments of the call: tensors on `device`, floating-point ones in the case's dtype, and constants."""
        with seeded(seed), device:
            values = self.values(case)
        dtype = getattr(torch, case.dtype)
        drawn = []
        for value in values:
            if isinstance(value, np.ndarray):
                value = torch.from_numpy(value)
            if isinstance(value, torch.Tensor):
                value = value.detach().to(device, dtype if value.is_floating_point() else value.dtype)
            elif not isinstance(value, bool | int | float | str | None):
                raise UsageError(f"{self.source.name}: inputs are tensors, arrays, numbers or texts; got {value!r}")
            drawn.append(value)
        return drawn

    def arguments(self, case: Case, inputs: tuple[torch.Tensor, ...]) -> list[Any]:
        """The arguments of the call, with `inputs` as its tensors."""
        tensors = iter(inputs)
        return [next(tensors) if each is TENSOR else each for each in self.pattern(case)]

    def pattern(self, case: Case) -> list[Any]:
        """The arguments of the call, with TENSOR in place of each tensor."""
        key = case.dims, case.dtype
        if key not in self._patterns:
            values = make_on_meta_or(torch.device("cpu"), lambda device: self.draw(case, 0, device))
            self._patterns[key] = [TENSOR if isinstance(each, torch.Tensor) else each for each in values]
        return self._patterns[key]

    def input_names(self, case: Case) -> list[str]:
        """For each tensor among the arguments, the name of its parameter."""
        pattern = self.pattern(case)
        names = [*self.parameters, *(f"argument {i + 1}" for i in range(len(self.parameters), len(pattern)))]
        return [name for name, each in zip(names, pattern, strict=False) if each is TENSOR]

    def with_constants(self, function: Function, case: Case) -> Function:
        """`function` with the constant arguments filled in: it takes the tensors alone."""
        if all(each is TENSOR for each in self.pattern(case)):
            return function
        return lambda *tensors: function(*self.arguments(case, tensors))


TENSOR = object()


def make_on_meta_or(device: torch.device, make: Callable[[torch.device], T]) -> T:
    """The result of `make` on tensors without memory, or on `device` if that fails."""
    try:
        return make(META)
    except UsageError:
        raise
    except Exception:  # the code needs values, as `.item()` does
        return make(device)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While open, the generators of torch, NumPy and Python are seeded with `seed`; then their states are restored."""
    python, numpy = random.getstate(), np.random.get_state()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # manual_seed seeds every GPU
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def signature_of(name: str, function: Function) -> str:
    """`softmax(x, eps=1e-06)`, without types."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty) for each in inspect.signature(function).parameters.values()
    ]
    return f"{name}{inspect.Signature(parameters)}"


def single_tensor(result: Any, name: str) -> torch.Tensor:
    """A result as a tensor. Raises `UsageError` unless it is one floating-point tensor or array."""
    if isinstance(result, np.ndarray | np.generic):
        result = torch.from_numpy(np.ascontiguousarray(result))
    if not isinstance(result, torch.Tensor) or result.layout is not torch.strided:
        raise UsageError(f"{name}: the result must be one tensor or array; got {_kind(result)}")
    if not result.is_floating_point():
        raise UsageError(f"{name}: the result is {result.dtype}; only floating-point results can be judged")
    return result


def _kind(result: Any) -> str:
    if isinstance(result, tuple | list | Mapping):
        return f"a {type(result).__name__} of {len(result)}"
    return f"a {type(result).__name__}"
