"""c = a + b in JAX, with mistakes in type, precision and tail."""

import jax
import jax.numpy as jnp
import numpy as np

from wrong_kernels import Wrong

MISTAKES = {
    "numpy_result": Wrong("the result is taken to the host as a NumPy array", "type", (1000,)),
    "sum_in_float16": Wrong("float32 inputs are added in float16", "value", (1000,)),
    "odd_element_dropped": Wrong(
        "elements are added two at a time, and the last of an odd number is not", "value", (1001,)
    ),
}


def make(mistake: str):
    @jax.jit
    def vector_add(a: jax.Array, b: jax.Array) -> jax.Array:
        if mistake == "sum_in_float16":
            return (a.astype(jnp.float16) + b.astype(jnp.float16)).astype(a.dtype)
        even = a.size // 2 * 2
        pairs = (a[:even].reshape(-1, 2) + b[:even].reshape(-1, 2)).reshape(-1)
        rest = jnp.zeros_like(a[even:]) if mistake == "odd_element_dropped" else a[even:] + b[even:]
        return jnp.concatenate([pairs, rest])

    if mistake == "numpy_result":
        return lambda a, b: np.asarray(vector_add(a, b))
    return vector_add
