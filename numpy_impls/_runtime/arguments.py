"""Arguments that the contract allows and the implementations of this folder do not take."""

from __future__ import annotations

import numpy as np

HAS_DEVICES = False
"""NumPy's arrays are all in the host's memory."""
INDICES = ("int64",)
"""Dtypes of arrays of indices."""


def check_supported(operation: str, arrays: dict[str, np.ndarray], precision: str | None) -> None:
    """Raises NotImplementedError for precision "tf32"."""
    if precision == "tf32":
        raise NotImplementedError(f"{operation}: precision 'tf32' needs NVIDIA's tensor cores; NumPy has only 'ieee'")
