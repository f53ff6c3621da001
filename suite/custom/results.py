"""The results of a user's reference: tensors, their names, and the one array in which they are judged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from suite.core.errors import UsageError
from suite.custom.about import ResultForm
from suite.numerics.formats import DTYPES, DTYPES_BEYOND, RESULT_BYTES
from suite.problem.blocks import blocks
from suite.problem.outputs import joined, judged_dtype, judged_shape, leaves, starts
from suite.problem.shape import Shape

JUDGED = frozenset((*DTYPES, *DTYPES_BEYOND, *RESULT_BYTES))


def tensors_of(result: Any, name: str) -> tuple[torch.Tensor, ...]:
    """The results of a call of the reference. Raises `UsageError` for one that cannot be judged."""
    return tuple(_tensor(each, result, name) for each in leaves(result)) or _refuse(result, name)


def forms_of(result: Any, name: str) -> tuple[ResultForm, ...]:
    """Names, shapes and dtypes of the results."""
    tensors = tensors_of(result, name)
    names = list(_names(result)) if len(tensors) > 1 else [""]
    return tuple(
        ResultForm(label, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for label, tensor in zip(names, tensors, strict=True)
    )


def exact_array(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The array that joins the results, in float64, or in int64 if all of them are integers."""
    found = joined(tensors)
    return found.to(torch.float64 if found.is_floating_point() else torch.int64).contiguous()


def pieces(forms: Sequence[ResultForm], shape: Shape) -> Iterator[tuple[tuple[slice, ...], str]]:
    """Indices that cover that array once, of shape `shape`, each with the type in which its result is judged."""
    if len(forms) == 1:
        yield from ((index, judged_dtype(forms[0].dtype)) for index in blocks(shape))
        return
    shapes = [judged_shape(each.shape, each.dtype) for each in forms]
    for begin, result, form in zip(starts(shapes), shapes, forms, strict=True):
        for (within,) in blocks((math.prod(result),)):
            yield (slice(begin + within.start, begin + within.stop),), judged_dtype(form.dtype)


def whole_results(forms: Sequence[ResultForm], shape: Shape) -> Iterator[tuple[tuple[slice, ...], str]]:
    """The index of each result in that array, with the type in which it is judged."""
    if len(forms) == 1:
        yield tuple(slice(0, size) for size in shape), judged_dtype(forms[0].dtype)
        return
    shapes = [judged_shape(each.shape, each.dtype) for each in forms]
    for begin, result, form in zip(starts(shapes), shapes, forms, strict=True):
        yield (slice(begin, begin + math.prod(result)),), judged_dtype(form.dtype)


def by_modulus(errors: torch.Tensor, forms: Sequence[ResultForm]) -> torch.Tensor:
    """Give both parts of each complex number the larger of their errors, in place: its roundings are relative to its
    modulus."""
    shapes = [judged_shape(each.shape, each.dtype) for each in forms]
    for begin, shape, form in zip(starts(shapes), shapes, forms, strict=True):
        if form.dtype.startswith("complex"):
            parts = errors.view(-1)[begin : begin + math.prod(shape)].view(-1, 2)
            parts.copy_(parts.amax(1, keepdim=True).expand_as(parts))
    return errors


def kind_of(value: Any) -> str:
    """A value in a few words: types and shapes, no numbers."""
    if isinstance(value, torch.Tensor | np.ndarray):
        dtype = str(value.dtype).removeprefix("torch.")
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            dtype = f"{str(value.layout).removeprefix('torch.')} {dtype}"
        return f"{dtype} {type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list | Mapping):
        items = list(value.values() if isinstance(value, Mapping) else value)
        inside = ", ".join(kind_of(each) for each in items[:3]) + (", ..." if len(items) > 3 else "")
        return f"{type(value).__name__} of {len(items)}" + (f" ({inside})" if items else "")
    return type(value).__name__


def _tensor(value: Any, result: Any, name: str) -> torch.Tensor:
    if isinstance(value, np.ndarray | np.generic):
        value = torch.from_numpy(np.ascontiguousarray(value).reshape(np.shape(value)))
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        _refuse(result, name)
    if judged_dtype(str(value.dtype).removeprefix("torch.")) not in JUDGED:
        raise UsageError(f"{name}: the result is {value.dtype}, which cannot be judged")
    return value


def _refuse(result: Any, name: str) -> Any:
    raise UsageError(
        f"{name}: the result must be dense tensors or arrays, alone or in tuples and dicts; got {kind_of(result)}"
    )


def _names(result: Any, path: str = "") -> Iterator[str]:
    """The names of several results, in the order of `leaves`: their fields, keys or positions."""
    if isinstance(result, Mapping):
        items = [(str(key), result[key]) for key in sorted(result, key=str)]
    elif isinstance(result, tuple | list):
        fields = getattr(type(result), "__match_args__", ()) or range(len(result))  # of a named tuple
        items = [(str(field), each) for field, each in zip(fields, result, strict=True)]
    else:
        if result is not None:
            yield path or "result"
        return
    for name, each in items:
        yield from _names(each, f"{path}.{name}" if path else f"result {name}" if name.isdecimal() else name)
