"""Functions compiled by torch.compile: Inductor writes a Triton kernel for each shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

SMALLEST = 2**20
"""Fewest elements of the first operand. For smaller operands compiling takes longer than it saves."""
Result = TypeVar("Result", Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor])


def compiled(operation: str, function: Callable[..., Result]) -> Callable[..., Result]:
    """Compiles `function` separately for each shape, dtype and layout: one kernel for all sizes would be slower.

    Raises, when called: NotImplementedError for operands that are not row-major or have fewer than SMALLEST elements.
    """
    fused = torch.compile(function, fullgraph=True, dynamic=False)

    def call(*operands: Tensor, **options: float | str | bool) -> Result:
        for operand in operands:
            if not operand.is_contiguous():
                raise NotImplementedError(
                    f"{operation}: compiled for row-major operands; got strides {operand.stride()}"
                )
        if operands[0].numel() < SMALLEST:
            raise NotImplementedError(
                f"{operation}: compiled from {SMALLEST} elements on; got {tuple(operands[0].shape)}"
            )
        _prepare()
        return fused(*operands, **options)

    return call


@cache
def _prepare() -> None:
    """Raises the limit of compiled shapes to 256. Compiles in this process, so that no worker processes stay behind."""
    torch._dynamo.config.recompile_limit = 256
    torch._inductor.config.compile_threads = 1
