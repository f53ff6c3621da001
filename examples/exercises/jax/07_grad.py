"""Exercise jax/07_grad: derivatives by transformation.

out[i] = the derivative of silu at x[i]. jax.grad(f) is the gradient of a function with a single number as its result.
"""

import jax
import jax.numpy as jnp

framework = "jax"


def silu(x):
    return x / (1 + jnp.exp(-x))


def silu_slope(x):
    """[N] -> [N]"""
    # TODO: return all derivatives. silu of an array is no single number: take the gradient of the sum of its elements,
    # or the gradient of silu of one number under jax.vmap.
    # END
