"""One call of an implementation: inputs are written to the buffers, the function runs, its result is copied.

A result of the wrong type, shape, dtype or layout is refused here (`RefusedError`). `suite/checking/memory.py`
describes the memory that the call used; `suite/checking/judge.py` compares the values with the truth.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch

from suite.checking import memory
from suite.checking.memory import MemoryUse, is_dense, same_bits
from suite.problem.outputs import joined, leaves

if TYPE_CHECKING:
    from suite.checking.problem import Problem
    from suite.frameworks.base import Adapter


class RefusedError(Exception):
    """The result is not an array of the right form, so its values cannot be judged."""


class Form(Protocol):
    """The form that a result must have."""

    @property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def output_dtypes(self) -> tuple[str, ...]: ...
    @property
    def device(self) -> torch.device: ...


class Result(MemoryUse, Protocol):
    """The result of one call, in this process or in another, and the memory that the call used."""

    early: torch.Tensor
    """A copy made in stream order as soon as the call returned."""

    def now(self) -> torch.Tensor:
        """The present values of the result. They are valid until the next call."""


class Caller(Protocol):
    """Makes the calls of the check, in this process or in another."""

    def call(self, draw: int, *, late: bool = False, again: bool = False) -> Result:
        """Make one call on the inputs of a draw and return its result. Raises `RefusedError`.

        draw: 0 or 1. late: on a GPU the inputs arrive after the call has been issued. again: the call is one of many
        with the same inputs, and its result is not read later (`Result.now`). The first call also loads and builds.
        """


@dataclass
class LocalResult:
    """The result of a call in this process, as `Result` describes it."""

    outputs: tuple[torch.Tensor, ...]
    early: torch.Tensor
    ranges: tuple[tuple[int, int], ...]
    alias: int | None
    unfinished: bool
    spilled: bool

    def now(self) -> torch.Tensor:
        return joined(self.outputs)


class LocalCaller:
    """Makes calls in this process on the buffers of `problem`. The first call gets the function from `load`."""

    def __init__(self, load: Callable[[], Callable[..., Any]], adapter: Adapter, problem: Problem) -> None:
        self._load, self._adapter, self._problem = load, adapter, problem
        self._function: Callable[..., Any] | None = None

    def call(self, draw: int, *, late: bool = False, again: bool = False) -> LocalResult:
        function = self._function = self._function or self._load()
        function = repeatable(function) if again else function
        problem = self._problem
        arguments = problem.op.arguments(problem.case)
        present = partial(problem.present, draw)
        return call_once(function, self._adapter, problem.buffers, arguments, problem, present, late=late)


def repeatable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a user's file without the detection of side effects; any other function unchanged."""
    found: Callable[..., Any] = getattr(function, "repeatable", function)
    return found


def call_once(
    function: Callable[..., Any],
    adapter: Adapter,
    buffers: Sequence[torch.Tensor],
    arguments: Mapping[str, Any],
    form: Form,
    present: Callable[[], None],
    *,
    late: bool,
) -> LocalResult:
    """Call `function` once on `buffers`, after `present` has filled them. Raises `RefusedError`."""
    with adapter.late_inputs(form.device) if late else contextlib.nullcontext():
        present()
        inputs = [adapter.to_native(buffer) for buffer in buffers]
        call = partial(adapter.called_with(function, buffers), *inputs, **arguments)
        result = adapter.poisoned(call, form.output_shapes, form.output_dtypes, form.device)
        outputs = as_torch(result, adapter, form)
        early = joined(outputs) if len(outputs) > 1 else joined(outputs).clone()
    adapter.wait(result)
    return LocalResult(
        outputs,
        early,
        ranges=tuple(map(memory.address_range, outputs)),
        alias=memory.alias(outputs, buffers),
        unfinished=not same_bits(joined(outputs), early),
        spilled=memory.spilled(outputs),
    )


def as_torch(result: Any, adapter: Adapter, form: Form) -> tuple[torch.Tensor, ...]:
    """Return the results of a call as torch tensors over the same memory: one, or those of a tuple, list or mapping.

    A result may have its axes stored in any order, as `torch.empty_like` of a transposed operand has.
    Raises `RefusedError` if the type, number, shapes, dtypes, strides or device are not those of `form`.
    """
    forms = tuple(zip(form.output_shapes, form.output_dtypes, strict=True))
    found = [result] if len(forms) == 1 and not isinstance(result, Mapping) else leaves(result)
    if len(found) != len(forms) or (len(forms) > 1 and adapter.is_array(result)):
        number = f" of {len(found)}" if isinstance(result, tuple | list | Mapping) else ""
        got = f"{type(result).__name__}{number}"
        raise RefusedError(f"type: the result is a {got}, not a tuple of {len(forms)} {adapter.array}")
    return tuple(_one_as_torch(each, adapter, form, *expected) for each, expected in zip(found, forms, strict=True))


def _one_as_torch(
    result: Any, adapter: Adapter, form: Form, expected: tuple[int, ...], expected_dtype: str
) -> torch.Tensor:
    if not adapter.is_array(result):
        raise RefusedError(f"type: the result is {adapter.described(result)}, not a {adapter.array}")
    shape, dtype, strides = adapter.form(result)
    if shape != expected:
        raise RefusedError(f"shape: the result has shape {shape}, expected {expected}")
    if dtype not in (expected_dtype, adapter.stand_ins.get(expected_dtype)):
        raise RefusedError(f"dtype: the result is {dtype}, expected {expected_dtype}")
    if not is_dense(shape, strides):
        raise RefusedError(f"strides: the result has strides {strides}, expected an array without gaps")
    output: torch.Tensor = adapter.to_torch(result).detach()
    if output.device != form.device:
        raise RefusedError(f"device: the result is on {output.device}, expected {form.device}")
    return output if dtype == expected_dtype else output.to(getattr(torch, expected_dtype))
