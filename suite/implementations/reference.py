"""The implementations of a user's reference: unchanged, and compiled by torch.compile.

It is the user's own code and the truth, so it runs in the worker, like the implementations of the tree.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from suite import custom, ops
from suite.implementations.implementation import Implementation
from suite.problem.case import Case

if TYPE_CHECKING:
    from suite.custom.operation import CustomOperation
    from suite.problem.operation import Operation

COMPILED = "torch/compile"


@dataclass(frozen=True)
class ReferenceImplementation(Implementation):
    """The reference for one case. `function` needs `case`."""

    case: Case | None = None

    def for_case(self, case: Case) -> ReferenceImplementation:
        return replace(self, case=case)

    def load(self) -> ModuleType:
        return ModuleType(self.operation)

    def function(self) -> Callable[..., Any]:
        """The reference, with products in the case's precision that are summed in float32."""
        assert self.source is not None
        assert self.case is not None
        program = custom.find(self.source).program
        if self.framework == "numpy":
            return _numpy(program.native(self.case), ops.operation(self.case).output_dtypes(self.case))
        make = partial(program.function, self.case)
        forms = Forms(ops.operation(self.case).output_dtypes(self.case), program.returns_views(self.case))
        return _Torch(make, self.case, forms, compiled=self.name == COMPILED)

    def versions(self) -> str:
        assert self.source is not None
        return f"{super().versions()}, {self.source.name} sha256 {self.source.digest}"


def _numpy(function: Callable[..., Any], dtypes: Sequence[str]) -> Callable[..., Any]:
    """`function` with row-major results in these dtypes."""
    import ml_dtypes
    import numpy as np

    from suite.problem.outputs import leaves

    kinds = [getattr(ml_dtypes, dtype, None) or np.dtype(dtype) for dtype in dtypes]

    def call(*arrays: Any) -> Any:
        found = leaves(function(*arrays))
        results = tuple(np.asarray(each, dtype=kind, order="C") for each, kind in zip(found, kinds, strict=True))
        return results[0] if len(results) == 1 else results

    return call


@dataclass(frozen=True)
class Forms:
    """The dtypes that the results of a reference must have, and if some of them lie in its arguments."""

    dtypes: tuple[str, ...]
    views: bool


class _Torch:
    """The reference for torch tensors. The first call makes it, for the device of its inputs."""

    def __init__(self, make: Callable[..., Callable[..., Any]], case: Case, forms: Forms, *, compiled: bool) -> None:
        self._make, self._case, self._forms, self._compiled = make, case, forms, compiled
        self._function: Callable[..., Any] | None = None
        self._settings: tuple[tuple[Any, str, Any], ...] = ()

    def __call__(self, *tensors: Any) -> Any:
        import torch

        if self._function is None:
            self._prepare(tensors[0].device)
        assert self._function is not None
        with torch.no_grad(), _set(self._settings):
            result = self._function(*tensors)
        return self._formed(result)

    def _prepare(self, device: Any) -> None:
        import torch

        from suite.custom.memory import formed, owned

        self._formed = partial(formed, dtypes=[getattr(torch, dtype) for dtype in self._forms.dtypes])
        function = self._make(getattr(torch, self._case.dtype), device)
        if self._compiled:
            torch._dynamo.config.recompile_limit = 256
            torch._inductor.config.compile_threads = 1  # compile in this process: no compiler process stays behind
            function = torch.compile(function, dynamic=False)
        self._function = owned(function) if self._forms.views else function
        if device.type == "cuda":
            self._settings = tuple(_settings(self._case.precision))


def _settings(precision: str) -> Iterator[tuple[Any, str, Any]]:
    """PyTorch's settings for products and convolutions in `precision` with float32 sums."""
    import torch

    backends = torch.backends
    for place in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        yield place, "fp32_precision", precision
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        yield backends.cuda.matmul, name, False


@contextlib.contextmanager
def _set(settings: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """While open, settings have these values. Only those that differ are written."""
    changed = [(place, name, now) for place, name, value in settings if (now := getattr(place, name)) != value]
    for place, name, value in settings if changed else ():
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in changed:
            setattr(place, name, value)


def implementations(op: Operation) -> tuple[ReferenceImplementation, ...]:
    """The unchanged reference; for PyTorch also the compiled one."""
    from suite.custom.operation import CustomOperation

    assert isinstance(op, CustomOperation)
    if op.about.framework == "numpy":
        return (_implementation(op, "numpy", "NumPy"),)
    return _implementation(op, "torch", "PyTorch"), _implementation(op, COMPILED, "PyTorch (Inductor)", requires="cuda")


def find(case: Case, name: str) -> Implementation:
    """The implementation of that name for `case`. Raises `LookupError` if there is none."""
    for each in implementations(ops.operation(case)):
        if each.name == name:
            return each.for_case(case)
    raise LookupError(f"{case.operation} has no implementation {name!r}")


def _implementation(
    op: CustomOperation, name: str, vendor: str, requires: str | None = None
) -> ReferenceImplementation:
    framework = name.partition("/")[0]
    beyond = op.dtypes
    return ReferenceImplementation(
        op.name, name, framework, "", vendor, requires, source=op.source, dtypes_beyond=beyond
    )
