"""A residual connection, and root mean square normalization of its rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_norm_pair
from numpy_impls.rms_norm import rms_norm

Matrix = Float[np.ndarray, "M N"]


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def add_rms_norm(x: Matrix, residual: Matrix, weight: Float[np.ndarray, N], *, eps: float) -> tuple[Matrix, Matrix]:
    """(y, r): r = x + residual, y[i, j] = r[i, j] * weight[j] / sqrt(mean over k of r[i, k]^2 + eps).

    x and residual (M, N), weight (N,), any strides; the results are row-major. y is computed from the rounded r.
    float32, float16 or bfloat16; computed in float64 and rounded once. Raises ValueError for other shapes and dtypes.
    """
    check_norm_pair("add_rms_norm", x, weight, residual=residual)
    r = (x.astype(np.float64) + residual.astype(np.float64)).astype(x.dtype, order="C")
    return rms_norm(r, weight, eps=eps), r
