"""Arguments that the contract allows and the implementations of this folder do not take."""

from __future__ import annotations

from torch import Tensor

HAS_DEVICES = True
"""All arguments of a call must be on one device."""
INDICES = ("int64",)
"""Dtypes of arrays of indices."""


def check_supported(operation: str, tensors: dict[str, Tensor], precision: str | None) -> None:
    """Raises NotImplementedError for precision "tf32" unless the tensors are on a GPU."""
    if precision == "tf32":
        first, x = next(iter(tensors.items()))
        if not x.is_cuda:
            raise NotImplementedError(
                f"{operation}: precision 'tf32' needs NVIDIA's tensor cores; {first} is on {x.device}"
            )
