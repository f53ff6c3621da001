"""The arguments of a user's operation: tensors and constants, perhaps in tuples, lists, dicts and dataclasses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import register_dataclass, tree_flatten, tree_unflatten

from suite.core.errors import UsageError
from suite.custom.results import kind_of

CONSTANTS = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)
"""Types of the arguments that are no tensors."""
UNWRITTEN = frozenset((torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty))
BLANK = UNWRITTEN | {torch.zeros, torch.zeros_like, torch.Tensor.new_zeros}


@dataclass(frozen=True)
class Pattern:
    """The arguments of a call.

    leaves: the items of `structure`; those at `tensors` are tensors. unwritten: the tensors, counted from 0, that come
    from torch.empty and were not written to since. blank: the same from torch.empty or torch.zeros.
    """

    leaves: tuple[Any, ...]
    structure: Any
    tensors: tuple[int, ...]
    unwritten: frozenset[int]
    blank: frozenset[int]

    @property
    def is_plain(self) -> bool:
        """True if the arguments are one tensor after the other."""
        return bool(len(self.tensors) == len(self.leaves) == self.structure.num_children > 0)

    def arguments(self, tensors: Sequence[Any]) -> list[Any]:
        """The arguments with these tensors, or arrays of another framework."""
        if self.is_plain:
            return list(tensors)
        leaves = list(self.leaves)
        for position, tensor in zip(self.tensors, tensors, strict=False):  # for none, `tensors` has an empty one
            leaves[position] = tensor
        found: list[Any] = tree_unflatten(leaves, self.structure)
        return found

    def names(self, parameters: Sequence[str]) -> list[str]:
        """For each tensor, the parameter that it is a part of."""
        owners = [
            parameters[min(i, len(parameters) - 1)] if parameters else f"argument {i + 1}"
            for i, child in enumerate(self.structure.children())
            for _ in range(child.num_leaves)
        ]
        return [owners[position] for position in self.tensors]


class Allocations(TorchFunctionMode):  # type: ignore[misc]
    """While entered, notes which memory comes from torch.empty and torch.zeros."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[int, tuple[torch.UntypedStorage, Any]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in BLANK:
            storage = result.untyped_storage()  # kept alive, so that no other gets its identity
            self._made[storage._cdata] = storage, func
        return result

    def places(self, tensors: Sequence[torch.Tensor], makers: Collection[Any]) -> frozenset[int]:
        """The positions of the tensors from these functions that were not written to since."""
        made = [self._made.get(each.untyped_storage()._cdata) for each in tensors]
        return frozenset(i for i, found in enumerate(made) if found and found[1] in makers and tensors[i]._version == 0)


def flattened(values: Sequence[Any], name: str) -> tuple[list[Any], Any]:
    """The leaves of the arguments, with NumPy's arrays as tensors, and their structure.

    Raises `UsageError` for an argument of another kind.
    """
    leaves, structure = tree_flatten([*values])
    while classes := {type(each) for each in leaves if is_dataclass(each)}:
        for each in classes:
            register_dataclass(each)
        leaves, structure = tree_flatten([*values])
    leaves = [torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in leaves]
    if unknown := [each for each in leaves if not isinstance(each, (torch.Tensor, *CONSTANTS)) or _is_sparse(each)]:
        raise UsageError(
            f"{name}: inputs are dense tensors, arrays, numbers or texts, alone or in tuples, lists, dicts and "
            f"dataclasses; got {kind_of(unknown[0])}"
        )
    return leaves, structure


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided


def pattern_of(leaves: Sequence[Any], structure: Any, made: Allocations) -> Pattern:
    places = tuple(i for i, each in enumerate(leaves) if isinstance(each, torch.Tensor))
    tensors = [leaves[i] for i in places]
    return Pattern(
        tuple(None if i in places else each for i, each in enumerate(leaves)),
        structure,
        places,
        made.places(tensors, UNWRITTEN),
        made.places(tensors, BLANK),
    )


def is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
