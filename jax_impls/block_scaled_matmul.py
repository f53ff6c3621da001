"""Product of float8 codes with a scale for each group of 128 terms: a product of XLA for each group."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jax_impls._runtime.products import GROUP, check_block_scaled_matmul

VENDOR = "XLA"
DTYPES_BEYOND = ("float8_e4m3fn",)


@jax.jit
def block_scaled_matmul(
    a: Float[Array, "M K"],
    scale_a: Float[Array, "M G_K"],
    b: Float[Array, "N K"],
    scale_b: Float[Array, "G_N G_K"],
) -> Float[Array, "M N"]:
    """c[i, j] = sum over k of a[i, k] scale_a[i, k // 128] b[j, k] scale_b[j // 128, k // 128], in bfloat16.

    a (M, K) and b (N, K) float8_e4m3fn, scales float32. A loop adds the scaled products of the groups in float32; XLA
    has no product with scales of blocks on Hopper. The last group is filled with zeros. The result is rounded once.
    K = 0 gives zeros. Raises ValueError for other arguments.
    """
    M, N, K = check_block_scaled_matmul(a, scale_a, b, scale_b)
    groups = scale_a.shape[1]
    left, right = (
        jnp.pad(x, ((0, 0), (0, -K % GROUP))).reshape(x.shape[0], groups, GROUP).swapaxes(0, 1) for x in (a, b)
    )

    def add(sums: Array, group: tuple[Array, Array, Array, Array]) -> tuple[Array, None]:
        x, of_x, y, of_y = group
        product = lax.dot_general(
            x, y, (((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
        )
        return sums + product * (of_x[:, None] * jnp.repeat(of_y, GROUP)[:N]), None

    sums, _ = lax.scan(add, jnp.zeros((M, N), jnp.float32), (left, scale_a.T, right, scale_b.T))
    return sums.astype(jnp.bfloat16)
