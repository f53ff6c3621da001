"""A step of Adam in NumPy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from numpy_impls._runtime.contract import check_adam_step


@np.errstate(over="ignore", invalid="ignore", under="ignore")
def adam_step(
    param: Float[np.ndarray, ...],
    grad: Float[np.ndarray, ...],
    m: Float[np.ndarray, ...],
    v: Float[np.ndarray, ...],
    *,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> tuple[Float[np.ndarray, ...], Float[np.ndarray, ...], Float[np.ndarray, ...]]:
    """(param, m, v) after step number `step`, from 1 on, of Adam, or of AdamW if `decoupled`.

    g = grad + weight_decay param, or, decoupled, param (1 - lr weight_decay) first; m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2; param - lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps).

    Any shape and strides, the same shape for all. param and grad: float32, float16 or bfloat16; m and v: float32, as is
    all arithmetic.

    Raises ValueError for other shapes, dtypes and steps.
    """
    check_adam_step(param, grad, m, v, step=step)
    p, g = param.astype(np.float32), grad.astype(np.float32)
    if decoupled:
        p *= np.float32(1.0 - lr * weight_decay)
    else:
        g += np.float32(weight_decay) * p
    m = np.ascontiguousarray(np.float32(beta1) * m + np.float32(1.0 - beta1) * g)
    v = np.ascontiguousarray(np.float32(beta2) * v + np.float32(1.0 - beta2) * g * g)
    rate, root_factor = np.float32(lr / (1.0 - beta1**step)), np.float32((1.0 - beta2**step) ** -0.5)
    p -= rate * (m / (np.sqrt(v) * root_factor + np.float32(eps)))
    return np.ascontiguousarray(p.astype(param.dtype, copy=False)), m, v
