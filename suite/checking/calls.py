"""The form that a result must have, and results as torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from suite.checking.memory import is_row_major

if TYPE_CHECKING:
    from suite.frameworks.base import Adapter


class RefusedError(Exception):
    """The result is not an array of the right form, so its values cannot be judged."""


class Form(Protocol):
    """The form that a result must have."""

    @property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def output_dtype(self) -> str: ...
    @property
    def device(self) -> torch.device: ...


def as_torch(result: Any, adapter: Adapter, form: Form) -> tuple[torch.Tensor, ...]:
    """The results as torch tensors over the same memory: one, or those of a tuple or list where there are several.

    Raises `RefusedError` if they are not of the contract's form.
    """
    shapes = form.output_shapes
    if len(shapes) == 1:
        return (_one_as_torch(result, adapter, form, shapes[0]),)
    if type(result) not in (tuple, list) or len(result) != len(shapes):
        got = f"{type(result).__name__}" + (f" of {len(result)}" if isinstance(result, tuple | list) else "")
        raise RefusedError(f"type: the result is a {got}, not a tuple of {len(shapes)} {adapter.array}")
    return tuple(_one_as_torch(each, adapter, form, shape) for each, shape in zip(result, shapes, strict=True))


def _one_as_torch(result: Any, adapter: Adapter, form: Form, expected: tuple[int, ...]) -> torch.Tensor:
    if not adapter.is_array(result):
        raise RefusedError(f"type: the result is a {type(result).__name__}, not a {adapter.array}")
    shape, dtype, strides = adapter.form(result)
    if shape != expected:
        raise RefusedError(f"shape: the result has shape {shape}, expected {expected}")
    if dtype != form.output_dtype:
        raise RefusedError(f"dtype: the result is {dtype}, expected {form.output_dtype}")
    if not is_row_major(shape, strides):
        raise RefusedError(f"strides: the result has strides {strides}, expected row-major without gaps")
    output: torch.Tensor = adapter.to_torch(result).detach()
    if output.device != form.device:
        raise RefusedError(f"device: the result is on {output.device}, expected {form.device}")
    return output
