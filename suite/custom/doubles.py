"""The allowed error of results in float64, where the truth has the same number of digits as the results.

To first order, the errors of roundings grow with the unit roundoff. So the reference runs with float32 in place of
float64, and its errors are scaled by the ratio of the two unit roundoffs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from suite.numerics.dispatch import DispatchMode
from suite.numerics.formats import unit_roundoff

SCALE = 2.0 * unit_roundoff("float64") / unit_roundoff("float32")
"""Error in float64 for one in float32; twice, since the truth has such an error too."""
NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}


class InFloat32(DispatchMode):
    """While entered, in this thread, float32 stands for float64."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map(_narrow, (args, kwargs or {}))
        return func(*args, **kwargs)


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, computed in float32 where it asks for float64."""

    def call(*tensors: torch.Tensor) -> Any:
        with InFloat32():
            return function(*map(_narrow, tensors))

    return call


def _narrow(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(NARROWER.get(value.dtype, value.dtype))
    return NARROWER.get(value, value) if isinstance(value, torch.dtype) else value
