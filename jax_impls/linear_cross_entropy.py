"""The cross entropy of a linear layer's logits with targets, by XLA: loops over blocks of columns."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jax_impls._runtime.losses import check_linear_cross_entropy

VENDOR = "XLA"
LOGITS = 2**23
"""Logits of a block. All arrays of a block are small beside the weight of a large vocabulary."""


@partial(jax.jit, static_argnames="ignore_index")
def linear_cross_entropy(
    x: Float[Array, "T H"], weight: Float[Array, "V H"], target: Int[Array, T], *, ignore_index: int = -100
) -> tuple[Float[Array, T], Float[Array, "T H"], Float[Array, "V H"]]:
    """(loss, dx, dweight): the `cross_entropy` of x weight^T with target, and the gradients of the mean loss.

    The logits of a block of columns are computed twice: for the sum of exponentials, and for the gradients. The last
    block ends at V and may overlap the one before; the columns of the overlap are masked.
    float32, float16 or bfloat16. Logits and sums are float32, the gradients of logits are rounded as factors of
    products. Raises ValueError for other shapes and dtypes. A target outside [0, V) gives NaN.
    """
    T, V, H = check_linear_cross_entropy(x, weight, target)
    if T == 0 or V == 0:
        return jnp.zeros(T, jnp.float32), jnp.zeros_like(x), jnp.zeros_like(weight)
    columns = min(V, max(256, LOGITS // T))
    blocks = -(-V // columns)
    counted = target != ignore_index
    known = jnp.where((target >= 0) & (target < V), 1.0, jnp.nan)
    share = jnp.where(counted, known / jnp.maximum(jnp.sum(counted), 1), 0.0)[:, None]

    def block(index: Array) -> tuple[Array, Array, Array, Array]:
        """The first column of a block, its rows of the weight, its logits, and its columns (1, columns)."""
        first = jnp.minimum(index * columns, V - columns)
        rows = lax.dynamic_slice(weight, (first, 0), (columns, H))
        at = first + jnp.arange(columns)[None, :]
        z = product(x, rows, (1, 1))
        return first, rows, jnp.where(at >= index * columns, z, -jnp.inf), at

    def sums(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        highest, total, wanted = carry
        _, _, z, at = block(index)
        larger = jnp.maximum(highest, jnp.max(z, axis=1))
        total = total * jnp.exp(highest - larger) + jnp.sum(jnp.exp(z - larger[:, None]), axis=1)
        is_target = (at == target[:, None]) & (at >= index * columns)
        return larger, total, wanted + jnp.sum(jnp.where(is_target, z, 0.0), axis=1)

    def gradients(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        dx, dweight = carry
        first, rows, _, at = block(index)
        p = jnp.exp(product(x, rows, (1, 1)) - highest[:, None]) / total[:, None]
        dz = jnp.where(counted[:, None], (p - (at == target[:, None])) * share, 0.0).astype(x.dtype)
        of_block = product(dz, x, (0, 0)).astype(x.dtype)
        new = jnp.where(at >= index * columns, dz, 0)
        return dx + product(new, rows, (1, 0)), lax.dynamic_update_slice(dweight, of_block, (first, 0))

    start = (jnp.full(T, -jnp.inf), jnp.zeros(T), jnp.zeros(T))
    highest, total, wanted = lax.fori_loop(0, blocks, sums, start)
    loss = jnp.where(counted, (jnp.log(total) + (highest - wanted)) * known, 0.0)
    dx, dweight = lax.fori_loop(0, blocks, gradients, (jnp.zeros((T, H)), jnp.zeros_like(weight)))
    return loss, dx.astype(x.dtype), dweight


def product(a: Array, b: Array, contracted: tuple[int, int]) -> Array:
    """Sum of the products of a and b over one dimension of each, in float32."""
    dimensions = (((contracted[0],), (contracted[1],)), ((), ()))
    precision = lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return lax.dot_general(a, b, dimensions, precision=precision, preferred_element_type=jnp.float32)
