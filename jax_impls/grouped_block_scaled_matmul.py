"""Products of each expert's rows with its weights in float8 with scales of groups: a ragged_dot of XLA for each group.

XLA has no such product with scales of blocks on Hopper.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jax_impls._runtime.experts import check_grouped_block_scaled_matmul
from jax_impls._runtime.products import GROUP

VENDOR = "XLA"
DTYPES_BEYOND = ("float8_e4m3fn",)


@jax.jit
def grouped_block_scaled_matmul(
    x: Float[Array, "T K"],
    scale_x: Float[Array, "T G_K"],
    weight: Float[Array, "E N K"],
    scale_weight: Float[Array, "E G_N G_K"],
    sizes: Int32[Array, E],
) -> Float[Array, "T N"]:
    """y[t, n] = sum over k of x[t, k] scale_x[t, k // 128] weight[e, n, k] scale_weight[e, n // 128, k // 128].

    Row t is among the sizes[e] rows of expert e. The rows are in the order of the experts; sizes are not negative, and
    their sum is T.

    x (T, K) and weight (E, N, K) float8_e4m3fn, scales float32, sizes int32. A loop adds the scaled products of the
    groups in float32. The codes are exact in bfloat16, which ragged_dot takes. The last group is filled with zeros. The
    result is rounded once to bfloat16. K = 0 gives zeros. Raises ValueError for other arguments.
    """
    T, _, K, N = check_grouped_block_scaled_matmul(x, scale_x, weight, scale_weight, sizes)
    if T * K * N == 0:
        return jnp.zeros((T, N), jnp.bfloat16)
    expert = jnp.searchsorted(jnp.cumsum(sizes), jnp.arange(T), side="right")
    rows = jnp.pad(x, ((0, 0), (0, -K % GROUP))).reshape(T, -1, GROUP)
    columns = jnp.pad(weight, ((0, 0), (0, 0), (0, -K % GROUP))).reshape(*weight.shape[:2], -1, GROUP)

    def add(sums: Array, group: tuple[Array, Array, Array, Array]) -> tuple[Array, None]:
        left, of_x, right, of_weight = group
        product = lax.ragged_dot(
            left.astype(jnp.bfloat16), right.swapaxes(1, 2).astype(jnp.bfloat16), sizes,
            preferred_element_type=jnp.float32,
        )  # fmt: skip
        return sums + product * (of_x[:, None] * jnp.repeat(of_weight, GROUP, axis=1)[expert, :N]), None

    groups = rows.swapaxes(0, 1), scale_x.T, jnp.moveaxis(columns, 2, 0), jnp.moveaxis(scale_weight, 2, 0)
    sums, _ = lax.scan(add, jnp.zeros((T, N), jnp.float32), groups)
    return sums.astype(jnp.bfloat16)
