"""The case that an external process holds at present."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from suite.checking.calls import LocalResult
    from suite.implementations.bound_call import BoundCall
    from suite.problem.case import Case


@dataclass
class Held:
    """The present case: its operands, the memory of the result, and the results of calls."""

    case: Case
    operands: tuple[torch.Tensor, ...]
    staged: tuple[torch.Tensor, ...]
    result: torch.Tensor
    arguments: dict[str, Any]
    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[str, ...]
    device: torch.device
    checked: list[LocalResult]
    kept: dict[str, list[Any]]
    """The results of samples that the worker keeps, by name, the latest last."""
    latest: Any
    """The result of the latest sample."""
    bound: dict[str, BoundCall]
    inputs: dict[str, tuple[Any, ...]]
    """Inputs of samples without a call, by framework."""
