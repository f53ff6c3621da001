"""The memory of arguments and results of a user's function, in the arrays of any framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from suite.problem.outputs import leaves

Function = Callable[..., Any]


def fresh(array: Any, unwritten: bool) -> Any:
    """A copy of an array that a call may write to; without its values if it has none yet.

    The arrays of JAX cannot be written to, and are returned as they are.
    """
    if isinstance(array, torch.Tensor):
        return torch.empty_like(array) if unwritten else array.clone()
    return array.copy() if isinstance(array, np.ndarray) else array


def shares_memory(one: Any, other: Any) -> bool:
    """True if two arrays of torch, or two of NumPy, lie in the same memory."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.layout is not torch.strided or other.layout is not torch.strided:
            return False  # sparse tensors have no storage, and are refused as arguments and results
        return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)
    both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return both and bool(np.may_share_memory(one, other))


def owned(function: Function) -> Function:
    """`function` with copies of the results that lie in the memory of its arguments."""

    def own(result: Any, arrays: tuple[Any, ...]) -> Any:
        inside = any(shares_memory(result, each) for each in arrays)
        return fresh(result, unwritten=False) if inside else result

    def call(*arrays: Any) -> Any:
        found = tuple(own(each, arrays) for each in leaves(function(*arrays)))
        return found[0] if len(found) == 1 else found

    return call


def with_keys(function: Function, keys: frozenset[str]) -> Function:
    """`function`, whose results must have these keys if they are a mapping. Raises `ValueError` for others."""

    def call(*arrays: Any) -> Any:
        result = function(*arrays)
        if isinstance(result, Mapping) and (found := frozenset(map(str, result))) != keys:
            expected, got = (", ".join(sorted(each)) for each in (keys, found))
            raise ValueError(f"the results must have the keys {expected}; got {got}")
        return result

    return call


def formed(result: Any, dtypes: Sequence[torch.dtype] = ()) -> Any:
    """The results of a call as row-major tensors, of these dtypes if given; other values stay as they are."""
    found = [each.contiguous() if isinstance(each, torch.Tensor) else each for each in leaves(result)]
    if dtypes:
        found = [each.to(dtype) for each, dtype in zip(found, dtypes, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)
