"""The code of a file that defines an operation: it draws inputs, and computes the result in any type."""

from __future__ import annotations

import contextlib
import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch

from suite.core.errors import UsageError
from suite.custom.about import About
from suite.custom.arguments import Allocations, Pattern, flattened, is_floating, pattern_of
from suite.custom.memory import fresh, owned, shares_memory, with_keys
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.problem.outputs import leaves
from suite.problem.source import Source

Function = Callable[..., Any]
META, CPU = torch.device("meta"), torch.device("cpu")
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """The effects of a call of the reference.

    written: the positions of the tensors that it writes to. count: the number of its results. views: some result lies
    in the memory of an argument. keys: those of the results, if they are a mapping.
    """

    written: tuple[int, ...]
    count: int
    views: bool
    keys: frozenset[str] = frozenset()


class Program(ABC):
    """The code of one file."""

    framework = "torch"
    """Framework whose arrays the reference takes: torch or numpy."""
    kernels_use_float32 = False
    """True if float64 in the reference is for its exactness alone: kernels may compute in float32 there."""
    mutates: Sequence[str] = ()
    """The parameters that the file declares as written to."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._patterns: dict[Any, Pattern] = {}
        self._outcomes: dict[Any, Outcome] = {}
        self._followers: dict[Any, frozenset[int]] = {}

    @abstractmethod
    def about(self) -> About:
        """The description of the operation, without facts about cases."""

    @abstractmethod
    def values(self, case: Case) -> list[Any]:
        """The arguments of the call, drawn on torch's default device from its default generator."""

    parameters: Sequence[str]
    """The names of the parameters of the reference."""

    @abstractmethod
    def reference(self, case: Case, dtype: torch.dtype, device: torch.device) -> Function:
        """The reference for arrays of `dtype`. Parameters are rounded to the case's dtype first."""

    def native(self, case: Case) -> Function:
        """The unchanged reference, for arrays of its framework, as a function of the arrays alone."""
        raise NotImplementedError

    def is_small(self, case: Case) -> bool:
        """True if a call on the CPU is known to take less time than torch's imports for tensors without memory."""
        return False

    def stated(self, what: str, case: Case) -> Any:
        """The `flops`, `bytes` or `tolerance` that the file states for a case; None if it states none."""
        return None

    def weights(self, case: Case) -> dict[str, torch.Tensor]:
        """The parameters of the model that the file defines, by name: the tensors that `function` reads, on the CPU."""
        return {}

    def parameter_bytes(self, case: Case) -> int:
        """Bytes that the reference reads besides its inputs."""
        return 0

    def result_dtype(self, dtype: str, case: Case, inputs: Collection[str]) -> str:
        """The type of a result of the reference that has `dtype`, where the floating-point inputs have these types.

        NumPy's references compute in float64. Where no input has the case's type, float32 results are rounded to it.
        """
        if self.framework == "numpy":
            return case.dtype if dtype == "float64" else dtype
        return case.dtype if dtype == "float32" and inputs and case.dtype not in inputs else dtype

    # Inputs

    def draw(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        """The tensors in the arguments of the call, on `device`; an empty one, which the call does not get, if there
        are none.

        Floating-point tensors have the case's dtype, except those that keep their own (`_kept`).
        """
        with seeded(seed), device:
            found, _ = flattened(self.values(case), self.source.name)
        kept, dtype = self._kept(case, found), getattr(torch, case.dtype)
        return tuple(
            each.detach().to(device, dtype if each.is_floating_point() and i not in kept else each.dtype)
            for i, each in enumerate(found)
            if isinstance(each, torch.Tensor)
        ) or (torch.empty(0, device=device),)

    def pattern(self, case: Case) -> Pattern:
        """The arguments of the call without their tensors."""
        if case.dims not in self._patterns:

            def drawn(device: torch.device) -> Pattern:
                with seeded(0), device, Allocations() as made:
                    return pattern_of(*flattened(self.values(case), self.source.name), made)

            self._patterns[case.dims] = make_cheaply_or(CPU, self.is_small(case), drawn)
        return self._patterns[case.dims]

    def _kept(self, case: Case, given: Sequence[Any]) -> Collection[int]:
        """Positions of the floating-point tensors that keep their dtype.

        They are those that do not follow torch's default dtype. If all of them have one dtype of DTYPES, none is kept:
        the file draws in that type, and the case asks for another.
        """
        kinds = {i: each.dtype for i, each in enumerate(given) if is_floating(each)}
        if set(kinds.values()) <= {getattr(torch, case.dtype)}:
            return ()
        if case.dims not in self._followers:
            self._followers[case.dims] = make_cheaply_or(
                CPU, self.is_small(case), lambda each: self._following(case, each)
            )
        declared = {i: kind for i, kind in kinds.items() if i not in self._followers[case.dims]}
        plain = [getattr(torch, dtype) for dtype in DTYPES]
        if declared == kinds and len(set(declared.values())) == 1 and set(declared.values()) <= set(plain):
            return ()
        return declared

    def _following(self, case: Case, device: torch.device) -> frozenset[int]:
        """Positions of the arguments' leaves whose dtype follows torch's default dtype. NumPy's float64 follows it."""

        def drawn(default: torch.dtype) -> list[Any]:
            with seeded(0), device, default_dtype(default):
                return flattened(self.values(case), self.source.name)[0]

        pairs = enumerate(zip(drawn(torch.float32), drawn(torch.float64), strict=True))
        numpy = self.framework == "numpy"
        return frozenset(i for i, (a, b) in pairs if is_floating(a) and (numpy or a.dtype != b.dtype))

    # Calls

    def function(self, case: Case, dtype: torch.dtype, device: torch.device) -> Function:
        """The reference as a function of the tensors alone, for tensors of `dtype`."""
        return self._on_tensors_alone(self.reference(case, dtype, device), case)

    def callable_of(self, entry: Any, case: Case) -> Function:
        """The function to call with the arrays of `case`, made from the `entry` that a kernel's file defines."""
        seen = self._seen(case)
        function = with_keys(entry, seen.keys) if seen and seen.keys else entry
        function = self._on_tensors_alone(function, case, self.outcome(case).count if self.written(case) else None)
        return owned(function) if seen and seen.views else function

    def outcome(self, case: Case) -> Outcome:
        """The effects of a call of the reference."""
        key = case.dims, case.dtype
        if key not in self._outcomes:
            device = torch.device("cuda") if torch.cuda.is_available() else CPU
            self._outcomes[key] = make_cheaply_or(device, self.is_small(case), lambda each: self._observed(case, each))
        return self._outcomes[key]

    def returns_views(self, case: Case) -> bool:
        """True if a result of the reference lies in an argument; false if only a run with numbers could tell."""
        seen = self._seen(case)
        return seen is not None and seen.views

    def _seen(self, case: Case) -> Outcome | None:
        """The effects of a call; None if only a run with numbers could tell."""
        try:
            return self.outcome(case) if self.is_small(case) else self._observed(case, META)
        except Exception:
            return None

    def input_names(self, case: Case) -> list[str]:
        """For each tensor among the arguments, the name of its parameter."""
        return self.pattern(case).names(self.parameters)

    def undeclared(self, case: Case) -> list[str]:
        """The parameters that the reference writes to, and that the file does not declare."""
        names = self.pattern(case).names(self.parameters)
        written = dict.fromkeys(names[i] for i in self.outcome(case).written)
        return [name for name in written if name not in self.mutates]

    def written(self, case: Case) -> tuple[int, ...]:
        """Positions of the tensors that a call may write to."""
        if not self.mutates:
            return ()
        names = self.pattern(case).names(self.parameters)
        return tuple(i for i, name in enumerate(names) if name in self.mutates)

    def results_in_arguments(self, case: Case) -> tuple[int, ...]:
        """Positions of the tensors that are results, since the reference writes to them."""
        return self.written(case)

    def _observed(self, case: Case, device: torch.device) -> Outcome:
        tensors = self.draw(case, 0, device)
        before = [each._version for each in tensors]
        with torch.no_grad():
            result = self.reference(case, getattr(torch, case.dtype), device)(*self.pattern(case).arguments(tensors))
        found = leaves(result)
        written = tuple(i for i, (each, old) in enumerate(zip(tensors, before, strict=True)) if each._version != old)
        returned = [i for i, each in enumerate(tensors) if any(shares_memory(each, one) for one in found)]
        count = len(found) + len(set(written) - set(returned))
        keys = frozenset(map(str, result)) if isinstance(result, Mapping) else frozenset[str]()
        return Outcome(written, count, bool(set(returned) - set(written)), keys)

    def _on_tensors_alone(self, function: Function, case: Case, count: int | None = None) -> Function:
        """`function` with the constant arguments, and with fresh memory for arguments that a call may write to.

        Arguments that the reference writes to are results too, unless the call returns them. A kernel must have `count`
        results: if it returns fewer, the arguments that it may write to are the others.
        """
        pattern, written = self.pattern(case), self.written(case)
        if not written:
            return function if pattern.is_plain else lambda *arrays: function(*pattern.arguments(arrays))
        results = self.results_in_arguments(case) if count is None else written

        def call(*arrays: Any) -> Any:
            given = [fresh(each, i in pattern.unwritten) if i in written else each for i, each in enumerate(arrays)]
            found = leaves(function(*pattern.arguments(given)))
            if count is None or len(found) < count:
                found += [given[i] for i in results if not any(shares_memory(each, given[i]) for each in found)]
            found = found if count is None else found[:count]
            return found[0] if len(found) == 1 else tuple(found)

        return call


def make_cheaply_or(device: torch.device, small: bool, make: Callable[[torch.device], T]) -> T:
    """The result of `make` on tensors without memory, or of a small case on the CPU; on `device` if that fails."""
    for cheap in (CPU, META) if small else (META,):
        try:
            return make(cheap)
        except UsageError:
            raise
        except Exception:  # the code needs values, as `.item()` does, or a GPU
            continue
    return make(device)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """While open, torch creates floating-point tensors in `dtype` unless told otherwise."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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


def mutates_of(module: ModuleType, parameters: Sequence[str], name: str) -> Sequence[str]:
    """The parameters that a file declares as written to: `mutates = ["out"]`."""
    given = getattr(module, "mutates", ())
    found = (given,) if isinstance(given, str) else tuple(given)
    if unknown := [each for each in found if each not in parameters]:
        raise UsageError(f"{name}: mutates must name parameters of {', '.join(parameters)}; got {unknown[0]!r}")
    return found
