"""Exercise jax/01_arrays: an expression of arrays.

out[i] = x[i] / (1 + exp(-x[i])). jax.numpy has NumPy's functions, for arrays on any device.
"""

import jax.numpy as jnp

framework = "jax"


def silu(x):
    """[N] -> [N]"""
    # TODO: return the function of the whole array, without a loop.
    return x / (1 + jnp.exp(-x))
    # END
