"""Fills uninitialised allocations with NaN, which reveals elements that a kernel does not write.

Guard bands around tensors that may be the result reveal writes beside it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from suite.numerics.dispatch import DispatchMode
from suite.problem.guard_bands import copy_between_bands, view_between_bands

aten = torch.ops.aten
ALLOCATORS = frozenset(
    (aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted, aten.new_empty, aten.new_empty_strided)
)


class Poison(DispatchMode):
    """While entered, in this thread, uninitialised torch tensors hold NaN, or the largest integer.

    A new tensor of a size in `result_bytes`, from any torch function, lies between guard bands.

    Not reached: memory that a library allocates inside one of its functions, and allocations of code compiled by
    TorchInductor.
    """

    def __init__(self, result_bytes: Collection[int] = ()) -> None:
        super().__init__()
        self.result_bytes = frozenset(result_bytes) - {0}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "overloadpacket", None) in ALLOCATORS:
            with contextlib.suppress(RuntimeError, TypeError):  # the dtype has no such value, or cannot be filled
                result.fill_(poison(result.dtype))
        if self.result_bytes and self._may_be_the_result(result, (args, kwargs)):
            return view_between_bands(copy_between_bands(result).untyped_storage(), result)
        return result

    def _may_be_the_result(self, tensor: Any, arguments: Any) -> bool:
        """True for a plain tensor of a result's size in new memory, which is not a view of an argument."""
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.device.type == "meta":
            return False
        try:
            storage = tensor.untyped_storage()
            if storage.nbytes() not in self.result_bytes or (tensor.device.type == "cpu" and tensor.is_pinned()):
                return False
            given = [each.untyped_storage() for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)]
            return all(each.data_ptr() != storage.data_ptr() for each in given)
        except (RuntimeError, NotImplementedError):  # the tensor has no memory of its own
            return False

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: a torch.compile function is compiled, as when it is timed, and not run op by op."""
        return True


def poison(dtype: torch.dtype) -> float | int | bool:
    """The value for a dtype: NaN, the largest integer (which is odd), or True."""
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def poisoned(allocate: Callable[..., Any]) -> Callable[..., Any]:
    """`allocate`, which is `numpy.empty` or `numpy.empty_like`, with its arrays filled."""
    import numpy as np

    def allocate_poisoned(*args: Any, **kwargs: Any) -> Any:
        array = allocate(*args, **kwargs)
        with contextlib.suppress(TypeError, ValueError):
            array.fill(np.iinfo(array.dtype).max if array.dtype.kind in "iu" else math.nan)
        return array

    return allocate_poisoned
