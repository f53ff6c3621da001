"""y = 1 / (1 + exp(-x)) in JAX, by other functions that look like it."""

import jax
import jax.numpy as jnp

from wrong_kernels import Wrong

MISTAKES = {
    "hard_sigmoid": Wrong("the piecewise linear approximation that networks use", "value", (1000,)),
    "bfloat16_inside": Wrong("float32 inputs are rounded to bfloat16 first", "value", (1000,)),
    "exp_overflows": Wrong(
        "exp(x) / (1 + exp(x)), which is inf / inf for large x", "not finite", (1025,), inputs="infinity"
    ),
}


def make(mistake: str):
    @jax.jit
    def sigmoid(x: jax.Array) -> jax.Array:
        if mistake == "hard_sigmoid":
            return jax.nn.hard_sigmoid(x)
        if mistake == "bfloat16_inside":
            x = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
        if mistake == "exp_overflows":
            return jnp.exp(x) / (1.0 + jnp.exp(x))
        z = jnp.exp(-jnp.abs(x))
        c = jnp.where(x < 0, z, 1.0)
        return c - c * (z / (1.0 + z))

    return sigmoid
