"""The cross entropy of each row of logits with its target, and the gradient of the mean, by the kernels of XLA."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_impls._runtime.losses import check_cross_entropy

VENDOR = "XLA"

Logits = Float[Array, "T V"]
Loss = Float[Array, "T"]
Target = Int[Array, "T"]


@partial(jax.jit, static_argnames=("ignore_index", "label_smoothing"))
def cross_entropy(
    logits: Logits, target: Target, *, ignore_index: int = -100, label_smoothing: float = 0.0
) -> tuple[Loss, Logits]:
    """(loss, dlogits): loss[t] = -sum over v of q[t, v] log softmax(logits[t])[v], dlogits = (softmax - q) / counted.

    q is 1 - label_smoothing at the target, plus label_smoothing / V. Rows whose target is `ignore_index` have loss 0
    and gradient 0, and do not count.
    float32, float16 or bfloat16; computed in float32 and rounded once; the loss is float32. Raises ValueError for other
    shapes and dtypes. A target outside [0, V) gives NaN in its row.
    """
    V = check_cross_entropy(logits, target, label_smoothing=label_smoothing)[1]
    counted = target != ignore_index
    share = 1.0 / jnp.maximum(jnp.sum(counted), 1)
    z = logits.astype(jnp.float32)
    z = z - jnp.max(z, axis=1, keepdims=True, initial=-jnp.inf)
    e = jnp.exp(z)
    total = jnp.sum(e, axis=1)
    is_target = jnp.arange(V) == target[:, None]
    wanted = jnp.sum(jnp.where(is_target, z, 0.0), axis=1)
    loss = (1.0 - label_smoothing) * (jnp.log(total) - wanted)
    if label_smoothing > 0.0:
        loss = loss + label_smoothing * (jnp.log(total) - jnp.mean(z, axis=1))
    gradient = e / total[:, None] - jnp.where(is_target, 1.0 - label_smoothing, 0.0) - label_smoothing / max(V, 1)
    known = jnp.where((target >= 0) & (target < V), 1.0, jnp.nan)
    loss = jnp.where(counted, loss * known, 0.0)
    dlogits = jnp.where(counted[:, None], gradient * (share * known)[:, None], 0.0)
    return loss, dlogits.astype(logits.dtype)
