"""Matrix addition: c[i, j] = a[i, j] + b[i, j], for any strides."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_add

DTYPES_BEYOND = ("float64",)


@np.errstate(over="ignore", invalid="ignore")
def matrix_add(a: Float[np.ndarray, "M N"], b: Float[np.ndarray, "M N"]) -> Float[np.ndarray, "M N"]:
    """c = a + b for matrices of float32, float16 or bfloat16 with any strides: transposed, sliced, broadcast (0).

    16-bit types: NumPy adds in float32. Its 24 bits suffice (at least 2 * 11 + 2) for the rounded float32 sum to be the
    correctly rounded result. `order="C"` makes the result row-major whatever the strides of the inputs. Sums beyond the
    dtype's range are infinite, without a warning.

    Raises ValueError for other shapes and dtypes.
    """
    check_add("matrix_add", a, b, ndim=2, float64=True)
    return np.add(a, b, order="C")
