"""NaN in memory that is handed out uninitialised: an element that a kernel leaves out is then seen."""

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
    """While entered, in this thread, what torch's functions allocate without a value holds NaN, integers the largest.

    Memory that a library takes for itself inside one of its functions is not reached, nor is what code compiled by
    TorchInductor allocates.
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "overloadpacket", None) in ALLOCATORS:
            with contextlib.suppress(RuntimeError, TypeError):  # a type that has no such value, or cannot be filled
                result.fill_(poison(result.dtype))
        return result

    supports_higher_order_operators = True  # they are called like all others

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Being skipped would import TorchDynamo, a second or two, in the first call of every worker."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """A function under torch.compile is compiled, as it will be when it is timed; not run op by op for our sake."""
        return True


def poison(dtype: torch.dtype) -> float | int | bool:
    """NaN; the largest integer, which is odd; True."""
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def poisoned(allocate: Callable[..., Any]) -> Callable[..., Any]:
    """`numpy.empty` or `numpy.empty_like`, filled."""
    import numpy as np

    def allocate_poisoned(*args: Any, **kwargs: Any) -> Any:
        array = allocate(*args, **kwargs)
        with contextlib.suppress(TypeError, ValueError):
            array.fill(np.iinfo(array.dtype).max if array.dtype.kind in "iu" else math.nan)
        return array

    return allocate_poisoned
