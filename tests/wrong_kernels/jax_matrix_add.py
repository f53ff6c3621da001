"""C = A + B in JAX, with mistakes in axes."""

import jax
import jax.numpy as jnp

from wrong_kernels import Wrong

MISTAKES = {
    "result_transposed": Wrong("added as (N, M), and left so", "shape", (33, 65), options={"layout": "tt"}),
    "first_row_broadcast": Wrong("the first row of B is added to every row of A", "value", (33, 65)),
    "axis_of_vmap": Wrong("rows of A meet columns of B", "value", (40, 40)),
}


def make(mistake: str):
    @jax.jit
    def matrix_add(a: jax.Array, b: jax.Array) -> jax.Array:
        if mistake == "result_transposed":
            return a.T + b.T
        if mistake == "first_row_broadcast":
            return a + b[0]
        return jax.vmap(jnp.add, in_axes=(0, 1 if mistake == "axis_of_vmap" else 0))(a, b)

    return matrix_add
