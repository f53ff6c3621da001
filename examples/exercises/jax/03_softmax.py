"""Exercise jax/03_softmax: reductions along an axis.

out = softmax of each row of x; x is [M, N]. jnp.max and jnp.sum take axis= and keepdims=.
"""

import jax.numpy as jnp

framework = "jax"


def softmax(x):
    # TODO: declare `weights`, the exponentials of x minus the maximum of each row. With keepdims=True a reduction keeps
    # its axis with length 1, and so can be subtracted.
    # END
    return weights / jnp.sum(weights, axis=1, keepdims=True)
