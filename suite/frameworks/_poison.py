"""Fills uninitialised allocations with NaN, so that an element that a kernel does not write is found."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
ALLOCATORS = frozenset(
    (aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted, aten.new_empty, aten.new_empty_strided)
)


class Poison(TorchDispatchMode):  # type: ignore[misc]
    """While entered, in this thread, uninitialised tensors of torch hold NaN; integer tensors the largest integer.

    Not reached: memory that a library allocates inside one of its functions, and allocations of code compiled by
    TorchInductor.
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "overloadpacket", None) in ALLOCATORS:
            with contextlib.suppress(
                RuntimeError, TypeError
            ):  # a dtype without such a value, or a tensor that cannot be filled
                result.fill_(poison(result.dtype))
        return result

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: skipping would import TorchDynamo, for a second or two, in the first call of every worker."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: a torch.compile function is compiled, as when it is timed, instead of being run op by op."""
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
