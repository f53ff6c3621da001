"""What a file that defines an operation can do: draw inputs, and compute the result in any type."""

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
    """What the reference computes with: torch's tensors or NumPy's arrays."""

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
        """The reference as it is, for arrays of its framework."""
        raise NotImplementedError

    def callable_of(self, entry: Any, case: Case) -> Function:
        """What is called with the arrays of `case`, of what a kernel's file defines."""
        return self.with_constants(entry, case)

    def stated(self, what: str, case: Case) -> Any:
        """What the file says of `flops`, `bytes` or `tolerance` of a case; None if it says nothing."""
        return None

    def parameter_bytes(self, case: Case) -> int:
        """Bytes of what the reference reads besides its inputs."""
        return 0

    # What follows

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
        """The arguments of the call with `inputs` in the places of tensors."""
        tensors = iter(inputs)
        return [next(tensors) if each is TENSOR else each for each in self.pattern(case)]

    def pattern(self, case: Case) -> list[Any]:
        """The arguments of the call, TENSOR standing for each tensor."""
        key = case.dims, case.dtype
        if key not in self._patterns:
            values = on_meta_or(torch.device("cpu"), lambda device: self.draw(case, 0, device))
            self._patterns[key] = [TENSOR if isinstance(each, torch.Tensor) else each for each in values]
        return self._patterns[key]

    def with_constants(self, function: Function, case: Case) -> Function:
        """`function` of the tensors alone."""
        if all(each is TENSOR for each in self.pattern(case)):
            return function
        return lambda *tensors: function(*self.arguments(case, tensors))


TENSOR = object()


def on_meta_or(device: torch.device, make: Callable[[torch.device], T]) -> T:
    """`make` with tensors that have a form and no memory; on `device` where that does not work."""
    try:
        return make(META)
    except UsageError:
        raise
    except Exception:  # what needs values, such as `.item()`
        return make(device)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While open, random numbers of torch, NumPy and Python are those of `seed`; then those of before."""
    python, numpy = random.getstate(), np.random.get_state()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # manual_seed seeds all of them
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


def the_tensor(result: Any, name: str) -> torch.Tensor:
    """A result as a tensor. Raises `UsageError` for another one."""
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
