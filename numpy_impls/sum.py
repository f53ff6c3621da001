"""Sums of a matrix, of its columns or of its rows, in float64."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_sum

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", invalid="ignore")
def sum(
    x: Float[np.ndarray, "M N"], *, axis: int | None = None
) -> Float[np.ndarray, ""] | Float[np.ndarray, M] | Float[np.ndarray, N]:
    """The sum of all elements (axis None), of each column (0) or of each row (1) of x (M, N), any strides.

    float32, float16 or bfloat16; added in float64 and rounded once. Raises ValueError for other shapes, dtypes, axes.
    """
    check_sum("sum", x, axis, float64=True)
    return np.asarray(np.sum(x, axis=axis, dtype=np.float64)).astype(x.dtype)
