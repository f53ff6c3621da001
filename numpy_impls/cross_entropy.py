"""The cross entropy of each row of logits with its target, and the gradient of the mean."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from numpy_impls._runtime.losses import check_cross_entropy


@np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")
def cross_entropy(
    logits: Float[np.ndarray, "T V"],
    target: Int64[np.ndarray, T],
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[Float[np.ndarray, T], Float[np.ndarray, "T V"]]:
    """(loss, dlogits): loss[t] = -sum over v of q[t, v] log softmax(logits[t])[v], dlogits = (softmax - q) / counted.

    q is 1 - label_smoothing at the target, plus label_smoothing / V. Rows whose target is `ignore_index` have loss 0
    and gradient 0, and do not count.
    float32, float16 or bfloat16; computed in float64 and rounded once; the loss is float32. Raises ValueError for other
    shapes and dtypes, and for a target outside [0, V).
    """
    T, V = check_cross_entropy(logits, target, label_smoothing=label_smoothing)
    counted = target != ignore_index
    outside = counted & ((target < 0) | (target >= V))
    if outside.any():
        raise ValueError(f"cross_entropy: target must be {ignore_index} or from 0 to {V - 1}; got {target[outside][0]}")
    z = logits.astype(np.float64, order="C")
    z -= np.max(z, axis=1, keepdims=True, initial=-np.inf)
    log_sum = np.log(np.sum(np.exp(z), axis=1))
    loss, dlogits = np.zeros(T, np.float32), np.zeros((T, V), logits.dtype)
    rows = np.flatnonzero(counted)
    if len(rows) == 0:
        return loss, dlogits
    z, log_sum, at = z[rows], log_sum[rows], target[rows]
    found = (1.0 - label_smoothing) * (log_sum - z[np.arange(len(rows)), at])
    if label_smoothing > 0.0:
        found += label_smoothing * (log_sum - z.mean(axis=1))
    gradient = np.exp(z - log_sum[:, None]) - label_smoothing / V
    gradient[np.arange(len(rows)), at] -= 1.0 - label_smoothing
    loss[rows], dlogits[rows] = found, gradient / len(rows)
    return loss, dlogits
