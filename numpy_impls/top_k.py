"""The k largest numbers of each row and their indices, by sorting."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from numpy_impls._runtime.contract import check_top_k


def top_k(x: Float[np.ndarray, "M N"], *, k: int) -> tuple[Float[np.ndarray, "M k"], Int64[np.ndarray, "M k"]]:
    """(values, indices) of the k largest numbers of each row, in descending order; NaN is larger than all others.

    x (M, N), any strides, k from 1 to N; the results are row-major. Equal numbers come in the order of their indices.
    float32, float16 or bfloat16. Raises ValueError for other arguments.
    """
    check_top_k(x, k)
    wide = x.astype(np.float64)
    indices = np.ascontiguousarray(np.lexsort((-wide, ~np.isnan(wide)), axis=1)[:, :k])
    return np.take_along_axis(x, indices, axis=1), indices
