"""Arguments that the contract allows and the kernels of this folder do not take."""

from __future__ import annotations

import torch
from torch import Tensor

HAS_DEVICES = True
"""All arguments of a call must be on one device."""
INDICES = ("int64",)
"""Dtypes of arrays of indices."""


def check_supported(operation: str, tensors: dict[str, Tensor], precision: str | None) -> None:
    """Raises NotImplementedError for tensors with torch's negative bit, and for those whose gradient is wanted."""
    for name, x in tensors.items():
        if x.is_neg():
            raise NotImplementedError(f"{operation}: {name} has torch's negative bit set; pass {name}.resolve_neg()")
        if x.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"{operation}: {name} requires a gradient, and this kernel has no backward pass; "
                f"pass {name}.detach(), or use torch.no_grad()"
            )
