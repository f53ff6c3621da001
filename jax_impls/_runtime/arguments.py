"""Arguments that the contract allows and the implementations of this folder do not take."""

from __future__ import annotations

import jax

HAS_DEVICES = False
"""Checks run while JAX traces, and a traced array has no device."""
INDICES = ("int64", "int32")
"""Dtypes of arrays of indices. JAX without its 64-bit mode has int32 alone."""


def check_supported(operation: str, arrays: dict[str, jax.Array], precision: str | None) -> None:
    """Raises NotImplementedError for precision "tf32" unless JAX runs on a GPU."""
    if precision == "tf32" and jax.default_backend() != "gpu":
        raise NotImplementedError(f"{operation}: precision 'tf32' needs NVIDIA's tensor cores; XLA on a CPU has none")


def check_hopper(operation: str) -> None:
    """Raises NotImplementedError unless JAX runs on a Hopper GPU."""
    device = jax.devices()[0]
    if getattr(device, "compute_capability", None) != "9.0":
        raise NotImplementedError(f"{operation}: needs a Hopper GPU (compute capability 9.0); JAX runs on {device}")
