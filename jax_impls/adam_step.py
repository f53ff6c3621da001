"""A step of Adam in JAX, fused by XLA."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jax_impls._runtime.contract import check_adam_step

VENDOR = "XLA"
Results = tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]


def adam_step(
    param: Float[Array, ...],
    grad: Float[Array, ...],
    m: Float[Array, ...],
    v: Float[Array, ...],
    *,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> Results:
    """(param, m, v) after step number `step`, from 1 on, of Adam, or of AdamW if `decoupled`.

    g = grad + weight_decay param, or, decoupled, param (1 - lr weight_decay) first; m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2; param - lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps).

    Any shape, the same for all. param and grad: float32, float16 or bfloat16; m and v: float32, as is all arithmetic.
    The step and the other numbers may change without another compilation.

    Raises ValueError for other shapes, dtypes and steps.
    """
    check_adam_step(param, grad, m, v, step=step)
    rate, root_factor = lr / (1.0 - beta1**step), (1.0 - beta2**step) ** -0.5
    decay = 1.0 - lr * weight_decay if decoupled else weight_decay
    factors = beta1, 1.0 - beta1, beta2, 1.0 - beta2, rate, root_factor, eps, decay
    return _step(param, grad, m, v, jnp.asarray(factors, jnp.float32), decoupled=decoupled)


@partial(jax.jit, static_argnames=("decoupled",))
def _step(param: Array, grad: Array, m: Array, v: Array, factors: tuple[float, ...], *, decoupled: bool) -> Results:
    """The factors are one array, copied to the device in one piece: constants would be compiled anew for each step."""
    beta1, rest1, beta2, rest2, rate, root_factor, eps, decay = factors
    p, g = param.astype(jnp.float32), grad.astype(jnp.float32)
    if decoupled:
        p = p * decay
    else:
        g = g + decay * p
    m = beta1 * m + rest1 * g
    v = beta2 * v + rest2 * g * g
    return (p - rate * (m / (jnp.sqrt(v) * root_factor + eps))).astype(param.dtype), m, v
