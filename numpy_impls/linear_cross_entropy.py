"""The cross entropy of a linear layer's logits with targets, and the gradients of the mean."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from numpy_impls._runtime.losses import check_linear_cross_entropy
from numpy_impls.cross_entropy import cross_entropy


@np.errstate(over="ignore", under="ignore", invalid="ignore")
def linear_cross_entropy(
    x: Float[np.ndarray, "T H"],
    weight: Float[np.ndarray, "V H"],
    target: Int64[np.ndarray, T],
    *,
    ignore_index: int = -100,
) -> tuple[Float[np.ndarray, T], Float[np.ndarray, "T H"], Float[np.ndarray, "V H"]]:
    """(loss, dx, dweight): the `cross_entropy` of x weight^T with target, and the gradients of the mean loss.

    float32, float16 or bfloat16, any strides; everything in float32, and the results are rounded. It holds the logits,
    (T, V). Raises ValueError for other shapes and dtypes, and for a target outside [0, V).
    """
    check_linear_cross_entropy(x, weight, target)
    rows, matrix = (each.astype(np.float32) for each in (x, weight))
    loss, dlogits = cross_entropy(rows @ matrix.T, target, ignore_index=ignore_index)
    return loss, (dlogits @ matrix).astype(x.dtype), (dlogits.T @ rows).astype(x.dtype)
