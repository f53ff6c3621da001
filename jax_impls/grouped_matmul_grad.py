"""Gradients of each expert's weights, compiled by XLA: jax.lax.ragged_dot_general over the rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jax_impls._runtime.experts import check_grouped_matmul_grad

VENDOR = "XLA"
OVER_ROWS = lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((0,), (0,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[]
)


@jax.jit
def grouped_matmul_grad(
    x: Float[Array, "T K"], dy: Float[Array, "T N"], sizes: Int32[Array, E]
) -> Float[Array, "E K N"]:
    """dw[e, k, n] = sum over the sizes[e] rows t of expert e of x[t, k] dy[t, n]; zeros for an expert without rows.

    The rows are in the order of the experts; sizes are not negative, and their sum is T.

    Dtypes: float32 with float32 products, float16 or bfloat16 with sums in float32, rounded once. sizes: int32.
    Raises ValueError for other shapes and dtypes.
    """
    T, E, K, N = check_grouped_matmul_grad(x, dy, sizes)
    if T * E * K * N == 0:
        return jnp.zeros((E, K, N), x.dtype)
    precision = lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    sums = lax.ragged_dot_general(x, dy, sizes, OVER_ROWS, precision=precision, preferred_element_type=jnp.float32)
    return sums.astype(x.dtype)
